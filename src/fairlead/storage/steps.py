"""The mechanical steps of the contract, for stores that take them in Python.

What a claim and a heartbeat write and when a guard holds is fixed by the contract's clauses C3, H1, G2 and G3. A store
that does these steps in Lua or SQL says the same there.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.core.instant import Instant, Span
from fairlead.core.task import EXECUTING, Lease, Status
from fairlead.storage.values import APPLIED, Beat, Change, Claim, Guard, Held, Pulse, Verdict


def claimed(status: Status, claim: Claim) -> Status:
    """A queued task's status once the claim has it (C3)."""
    end = claim.lease_end(status.timeout)
    return replace(
        status,
        state=EXECUTING,
        version=status.version + 1,
        attempts=status.attempts + 1,
        started_at=claim.now,
        lease=Lease(token=claim.token, worker=claim.worker, until=end),
        alarm=end,
    )


def extended(status: Status, beat: Beat, until: Instant, grace: Span) -> Status | None:
    """A status after a heartbeat of its lease holder (H1); None when the beat's lease is not the task's (H3)."""
    lease = status.lease
    if lease is None or lease.token != beat.token:
        return None
    limit = (status.started_at or 0) + status.timeout + grace
    end = max(lease.until, min(until, limit))
    return replace(
        status,
        beats=status.beats + 1,
        lease=replace(lease, until=end),
        alarm=end,
        progress=beat.progress or status.progress,
    )


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


def _holds(guard: Guard, status: Status) -> bool:
    if isinstance(guard, Held):
        lease = status.lease
        return status.version == guard.version and lease is not None and lease.token == guard.token
    return status.version == guard.version and status.beats == guard.beats
