"""The mechanical steps of the contract, for stores that take them in Python.

What a claim and a heartbeat write, when a guard holds, and how those are counted that a task waits for is fixed by the
contract's clauses C3, H1, G2, G3, D1 and D2. A store that does these steps in Lua or SQL says the same there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from msgspec.structs import replace

from fairlead.core.instant import AT_ONCE, Instant, Span
from fairlead.core.task import EXECUTING, Lease, State, Status
from fairlead.storage.values import APPLIED, Beat, Change, Claim, Guard, Held, Pulse, Verdict


def host_time() -> Instant:
    """The host's clock: the own clock of a store that all its users share a host with."""
    return time.time_ns() // 1_000


def claimed(status: Status, claim: Claim) -> Status:
    """A queued task's status once the claim has it (C3)."""
    at = claim.at
    end = claim.lease_end(status.timeout, at)
    return replace(
        status,
        state=EXECUTING,
        version=status.version + 1,
        attempts=status.attempts + 1,
        started_at=at,
        lease=Lease(token=claim.token, worker=claim.worker, until=end),
        alarm=end,
    )


def extended(status: Status, beat: Beat, length: Span, grace: Span, now: Instant) -> Status | None:
    """A status after a heartbeat of its lease holder (H1); None when the beat's lease is not the task's (H3)."""
    lease = status.lease
    if lease is None or lease.token != beat.token:
        return None
    started_at = min(status.started_at or 0, now)
    end = min(now + length, started_at + status.timeout + grace)
    return replace(
        status,
        started_at=started_at,
        beats=status.beats + 1,
        lease=replace(lease, until=end),
        alarm=end,
        progress=beat.progress or status.progress,
    )


def curtailed(status: Status, end: Instant) -> Status:
    """The status of a task whose lease is cut to this end (T2)."""
    lease = status.lease
    return replace(status, lease=None if lease is None else replace(lease, until=end), alarm=end)


def pulse(status: Status | None) -> Pulse:
    """The answer to a heartbeat that left the task like this (H2)."""
    if status is None:
        return Pulse.LOST
    return Pulse.CANCEL if status.cancel_asked else Pulse.HELD


def judged(change: Change, status: Status | None) -> Verdict:
    """Whether a change to a task of this status is to be made, and if not why not (G2, G3)."""
    if status is None:
        return Verdict.MISSING
    if _holds(change.guard, status):
        return APPLIED
    if isinstance(change.guard, Held) and change.status is not None and change.status.settled is not None:
        return Verdict.REPEATED if change.status.settled == status.settled else Verdict.STALE
    return Verdict.STALE


def ends(before: Status, after: Status | None) -> bool:
    """Whether a task comes to its end by standing like this, or by being removed: those who wait for it count it."""
    return not before.state.ended and (after is None or after.state.ended)


def counted(status: Status, parents: Iterable[State]) -> Status:
    """How a task stands at first that waits for tasks in these states (D1)."""
    states = list(parents)
    pending = sum(not state.ended for state in states)
    unmet = sum(state.ended and state is not State.COMPLETED for state in states)
    return _left(status, pending, max(unmet, status.unmet))


def released(status: Status, ended: int, unmet: int) -> Status:
    """How a waiting task stands once so many more of those it waits for have ended, and so many of them unmet (D2)."""
    after = _left(status, status.pending - ended, status.unmet + unmet)
    return replace(after, version=status.version + 1)


def _left(status: Status, pending: int, unmet: int) -> Status:
    return replace(status, pending=pending, unmet=unmet, alarm=None if pending else AT_ONCE)


def _holds(guard: Guard, status: Status) -> bool:
    if isinstance(guard, Held):
        lease = status.lease
        return status.version == guard.version and lease is not None and lease.token == guard.token
    return status.version == guard.version and status.beats == guard.beats
