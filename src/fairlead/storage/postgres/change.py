"""How changes are applied: a quick statement for lease holders who settle, a thorough one for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from fairlead.core.identity import TaskId
from fairlead.core.task import State
from fairlead.storage.postgres import binary_arrays
from fairlead.storage.postgres.columns import lease_columns, status_columns
from fairlead.storage.postgres.connection.pool import Connections
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.rows import ENDED, packed_parts, task_id_of
from fairlead.storage.postgres.statements import Statements, rounds
from fairlead.storage.postgres.url import Address
from fairlead.storage.quarantine import Damage, Removal
from fairlead.storage.values import APPLIED, RELEASED, Change, Held, Seen, Verdict

_AWAITED: Final = RELEASED
"""Until it is counted: the change ends a task that others wait for."""

_VERDICTS: Final = (Verdict.APPLIED, Verdict.STALE, Verdict.REPEATED, _AWAITED)


class Changer:
    """Applies changes."""

    def __init__(self, connections: Connections, statements: Statements, address: Address) -> None:
        self._connections = connections
        self._statements = statements
        self._address = address

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """The verdicts, in order."""
        verdicts = [Verdict.APPLIED] * len(changes)
        for places in rounds([change.id for change in changes]):
            found = await self._apply([changes[place] for place in places])
            for place in places:
                verdicts[place] = found.get(changes[place].id, Verdict.APPLIED)
        return verdicts

    async def set_aside(self, damage: Damage) -> Removal:
        """Remove what is no task, if it is still what was read, and tell those who wait for it."""

        async def work(session: Session) -> Removal:
            ids = binary_arrays.uuids([damage.id])
            await session.fetch(self._statements["change.hold"], (ids,))
            ((state, is_there),) = await session.fetch(
                self._statements["change.set_aside"], (UUID(damage.id), *packed_parts(damage))
            )
            if state is None:
                return Removal.CHANGED if is_there else Removal.GONE
            if state not in ENDED:
                await session.fetch(self._statements["change.release"], (ids, binary_arrays.booleans([False])))
            return Removal.REMOVED

        return await self._connections.transaction(work)

    async def _apply(self, changes: list[Change]) -> dict[TaskId, Verdict]:
        """The verdicts on changes to different tasks, but for those that were settled at once."""
        verdicts = await self._apply_plain(changes)
        ends = [change for change in changes if verdicts.get(change.id) is _AWAITED]
        if ends:

            async def work(session: Session) -> dict[TaskId, Verdict]:
                return await self._end(session, ends)

            verdicts |= await self._connections.transaction(work)
        return verdicts

    async def _end(self, session: Session, changes: Sequence[Change]) -> dict[TaskId, Verdict]:
        """The verdicts on changes that end tasks which others wait for."""
        await session.fetch(self._statements["change.hold"], (binary_arrays.uuids([change.id for change in changes]),))
        verdicts = await self._change(session, changes, counting=True)
        ended = [change for change in changes if verdicts[change.id] is _AWAITED]
        completed = [change.status is not None and change.status.state is State.COMPLETED for change in ended]
        rows = await session.fetch(
            self._statements["change.release"],
            (binary_arrays.uuids([change.id for change in ended]), binary_arrays.booleans(completed)),
        )
        last = {task_id_of(text) for (text,) in rows}
        return verdicts | {change.id: RELEASED if change.id in last else APPLIED for change in ended}

    async def _apply_plain(self, changes: list[Change]) -> dict[TaskId, Verdict]:
        """The same, but that the ends of tasks which others wait for are put off."""
        settles = sorted((change for change in changes if _is_settle(change)), key=_by_id)
        if settles:
            applied = await self._settle(settles)
            changes = [change for change in changes if change.id not in applied]
        return await self._change(self._connections, changes) if changes else {}

    async def _settle(self, changes: Sequence[Change]) -> set[TaskId]:
        """Settle what can be settled; its ids."""
        guards = [change.guard for change in changes]
        rows = await self._connections.fetch(
            self._statements["change.settle"],
            (
                binary_arrays.uuids([change.id for change in changes]),
                binary_arrays.int8s([guard.version for guard in guards]),
                binary_arrays.texts([guard.token if isinstance(guard, Held) else None for guard in guards]),
                *status_columns([change.status for change in changes]),
            ),
        )
        (applied,) = rows[0]
        return {change.id for change in changes} if applied is None else {task_id_of(text) for text in applied}

    async def _change(
        self, session: Session, changes: Sequence[Change], *, counting: bool = False
    ) -> dict[TaskId, Verdict]:
        guards = [change.guard for change in changes]
        statuses = [change.status for change in changes]
        rows = await session.fetch(
            self._statements["change.apply"],
            (
                self._address.channel,
                binary_arrays.uuids([change.id for change in changes]),
                binary_arrays.int8s([guard.version for guard in guards]),
                binary_arrays.texts([guard.token if isinstance(guard, Held) else None for guard in guards]),
                binary_arrays.int8s([guard.beats if isinstance(guard, Seen) else None for guard in guards]),
                binary_arrays.booleans([status is None for status in statuses]),
                *status_columns(statuses),
                *lease_columns(statuses),
                counting,
            ),
        )
        missing: dict[TaskId, Verdict] = {change.id: Verdict.MISSING for change in changes}
        return missing | {task_id_of(text): _VERDICTS[verdict] for text, verdict, _ in rows}


def _is_settle(change: Change) -> bool:
    """Whether change.settle can apply the change."""
    status = change.status
    if status is None or not isinstance(change.guard, Held):
        return False
    return status.lease is None and status.state is not State.QUEUED


def _by_id(change: Change) -> TaskId:
    return change.id
