"""Tasks for tests of the core, in any state, and Hypothesis strategies for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    CancelConfirmed,
    Completed,
    Crashed,
    Discarded,
    Event,
    Expired,
    Failed,
    HandedBack,
    Prioritized,
    Purged,
    Replayed,
    TimedOut,
)
from fairlead.core.identity import NOISE_BYTES, LeaseToken, TaskId, WorkerId, slot_of, task_id, tick_of
from fairlead.core.instant import DAY, HOUR, SECOND, Instant
from fairlead.core.retry import Backoff, RetryRule, with_rules
from fairlead.core.settings import DelayCeilings, Retention, Rules
from fairlead.core.task import Failure, Lease, Priority, Spec, State, Status, Task

NOW: Instant = 1_800_000_000 * SECOND
RULES = Rules()
BOOM = Failure(type="Boom", message="it went boom", traceback="line 1\nline 2")


def an_id(at: Instant = NOW, noise: int = 0, queue: str = "default") -> TaskId:
    return task_id(tick_of(at), slot_of(queue), noise.to_bytes(NOISE_BYTES))


def a_spec(**changes: Any) -> Spec:
    spec = Spec(
        id=an_id(),
        queue="default",
        type="send_mail",
        parameters=b"{}",
        created_at=NOW,
        timeout=600 * SECOND,
        max_retries=3,
        max_crashes=3,
        backoff=Backoff(jitter=0.0),
    )
    return replace(spec, **changes)


def a_lease(token: str = "token-1", worker: str = "worker-1", until: Instant = NOW + 30 * SECOND) -> Lease:
    return Lease(token=LeaseToken(token), worker=WorkerId(worker), until=until)


def a_task(state: State = State.QUEUED, *, spec: Spec | None = None, **changes: Any) -> Task:
    """A task as it would stand in this state, but for what the changes say."""
    spec = spec or a_spec()
    status = Status(state=state, priority=Priority.MEDIUM, ready_at=NOW, timeout=spec.timeout)
    if state is State.SCHEDULED:
        status = replace(status, ready_at=NOW + HOUR, alarm=NOW + HOUR)
    elif state is State.EXECUTING:
        status = replace(status, version=2, attempts=1, lease=a_lease(), alarm=NOW + 30 * SECOND, started_at=NOW)
    elif state.ended:
        status = replace(status, version=3, attempts=1, started_at=NOW, ended_at=NOW, alarm=NOW + DAY)
    return Task(spec, replace(status, **changes))


def executing(**changes: Any) -> Task:
    return a_task(State.EXECUTING, **changes)


def claimed(task: Task, now: Instant, token: str = "token-1") -> Task:
    """The task as a store's claim leaves it."""
    lease = a_lease(token, until=now + 30 * SECOND)
    status = task.status
    return Task(
        task.spec,
        replace(
            status,
            state=State.EXECUTING,
            version=status.version + 1,
            attempts=status.attempts + 1,
            started_at=now,
            lease=lease,
            alarm=lease.until,
        ),
    )


spans = st.integers(0, 2 * DAY)
backoffs = st.builds(
    Backoff,
    initial=spans,
    factor=st.floats(1.0, 10.0),
    ceiling=spans,
    jitter=st.floats(0.0, 1.0),
)
retry_rules = st.dictionaries(
    st.sampled_from(["Timeout", "Boom", "A", "pkg.A"]),
    st.builds(RetryRule, max_retries=st.none() | st.integers(0, 4), backoff=st.none() | backoffs, reject=st.booleans()),
)
rules = st.builds(
    Rules,
    retention=st.builds(Retention, completed=spans, cancelled=spans, failed=spans, dead_letter=spans),
    timeout_growth=st.floats(1.0, 4.0),
    timeout_ceiling=spans,
    timeout_growth_after_failure=st.booleans(),
    delay_ceilings=st.builds(DelayCeilings, critical=st.none() | spans, medium=st.none() | spans),
)
failures = st.builds(Failure, type=st.text(max_size=8) | st.just("Boom"), message=st.text(max_size=8))
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Completed, st.none() | st.binary(max_size=8)),
    st.builds(Failed, failure=failures, retriable=st.booleans(), after=st.none() | spans),
    st.just(TimedOut()),
    st.builds(Crashed, failures),
    st.builds(HandedBack, spans, st.booleans()),
    st.just(CancelConfirmed()),
    st.just(AlarmRang()),
    st.just(CancelAsked()),
    st.builds(Replayed, reset_retries=st.booleans(), priority=st.none() | st.sampled_from(Priority)),
    st.just(Discarded()),
    st.builds(Prioritized, st.sampled_from(Priority)),
    st.just(Purged()),
    st.just(Expired()),
)


@st.composite
def tasks(draw: st.DrawFn, states: st.SearchStrategy[State] | None = None) -> Task:
    """Tasks that could stand in a store, in any of the states."""
    state = draw(states or st.sampled_from(State))
    spec = a_spec(
        timeout=draw(st.integers(1, 2 * DAY)),
        max_retries=draw(st.integers(0, 4)),
        max_crashes=draw(st.integers(0, 4)),
        backoff=draw(st.builds(with_rules, backoffs, retry_rules)),
        key_until=draw(st.none() | st.integers(NOW, NOW + 2 * DAY)),
    )
    ready_at = NOW - draw(spans)
    # A scheduled task becomes ready when its alarm rings.
    alarms = {"alarm": ready_at} if state is State.SCHEDULED else {}
    return a_task(
        state,
        spec=spec,
        priority=draw(st.sampled_from(Priority)),
        retries=draw(st.integers(0, 5)),
        crashes=draw(st.integers(0, 5)),
        cancel_asked=state is State.EXECUTING and draw(st.booleans()),
        failure=draw(st.none() | failures),
        ready_at=ready_at,
        **alarms,
    )
