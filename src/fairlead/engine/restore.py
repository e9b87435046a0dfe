"""Putting a task back that was set aside, once its bytes can be decoded."""

from __future__ import annotations

from typing import assert_never

from fairlead.core.errors import RestoreRefused
from fairlead.core.health.quarantine import Quarantined
from fairlead.core.instant import Instant
from fairlead.core.lifecycle import rebuilt
from fairlead.core.settings import Rules
from fairlead.core.task import Task
from fairlead.storage.protocol import Quarantining, Store
from fairlead.storage.values import Added, Apart, Full, KeyHeld, KeyUnknown, Known, Missing, Receipt


async def restore(store: Store, quarantined: Quarantined, now: Instant, rules: Rules) -> Task:
    """Put a task back, as `rebuilt` says that it stands; repeating this changes nothing.

    The record of it stays: whoever read that drops it, if it is still the same. Raises RestoreRefused when its bytes
    cannot be decoded or the store refuses the task.
    """
    task = revived(store, quarantined)
    again = Task(task.spec, rebuilt(task, now, rules=rules))
    (receipt,) = await store.add([again], now=now, bounds={})
    if (reason := _refusal(receipt)) is not None:
        raise RestoreRefused(f"task {quarantined.name} cannot be restored: {reason}")
    return again


def revived(store: Store, quarantined: Quarantined) -> Task:
    """The task as it was set aside; raises RestoreRefused if its bytes cannot be decoded."""
    remedy = "mend what `fairlead quarantine export` writes, or discard it"
    if not isinstance(store, Quarantining):
        raise RestoreRefused(f"task {quarantined.name} cannot be restored: this store keeps no quarantine; {remedy}")
    try:
        return store.quarantine.revive(quarantined)
    except Exception as error:
        # Whatever decoders make of bytes that people may have had in their hands.
        raise RestoreRefused(
            f"task {quarantined.name} cannot be restored: its bytes still cannot be decoded ({error}); {remedy}"
        ) from None


def _refusal(receipt: Receipt) -> str | None:
    """Why a store did not take a task back."""
    match receipt:
        case Added() | Known():
            return None
        case KeyHeld(holder):
            return f"its idempotency key names task {holder} by now; discard one of the two"
        case Missing(named) | Apart(named):
            return f"it waits for task {named}, which is not there; discard it, or restore that one first"
        case KeyUnknown():
            return "the store has lost tasks, and may have lost one that holds its idempotency key; rebuild it first"
        case Full(depth, bound):
            return f"its queue is full: {depth} of {bound} tasks wait in it"
        case _:
            assert_never(receipt)
