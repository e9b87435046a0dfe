"""Hypothesis strategies: tasks, policies and claims as they may come; and how each example is checked in a coroutine.

Ranges are small on purpose: ties, promotions and near misses are what finds mistakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import Struct

from fairlead.core.events import (
    AlarmRang,
    CancelAsked,
    CancelConfirmed,
    Completed,
    Crashed,
    Discarded,
    Event,
    Failed,
    HandedBack,
    Outcome,
    Prioritized,
    Purged,
    Replayed,
    TimedOut,
)
from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, SECOND, Instant, Span
from fairlead.core.queues.limits import Limit, Limits, Rate
from fairlead.core.queues.order import HeadStart, Policy, Promote, Share, Strict, Table, Weighted
from fairlead.core.task import ENDED, Failure, Priority, State, Task
from fairlead.core.transitions import TRANSITIONS
from fairlead.storage.values import Claim, Filter, QueueOrder
from fairlead.testing.builders import GRACE, LEASE, NOW, a_task, a_token, an_id

Thing = TypeVar("Thing")

QUEUES: Final = ("a", "b", "a:b")
TYPES: Final = ("send", "resize")
CAPABILITIES: Final = ("gpu", "ssd")
TAGS: Final = ("red", "redder", "blue")
WORKERS: Final = (WorkerId("w1"), WorkerId("w2"))
WIDEST: Final = 30
"""How far from now a task's wait may have begun, and the longest step of a policy, in microseconds."""

priorities: Final = st.sampled_from(Priority)
queues: Final = st.sampled_from(QUEUES)
types: Final = st.sampled_from(TYPES)
capabilities: Final = st.frozensets(st.sampled_from(CAPABILITIES))
_steps: Final = st.integers(0, WIDEST // 2)
_weights: Final = st.integers(1, 9)

policies: Final[SearchStrategy[Policy]] = st.one_of(
    st.builds(Promote, low=_steps, medium=_steps, high=_steps),
    st.just(Strict()),
    st.builds(HeadStart, critical=_steps, high=_steps, medium=_steps, low=_steps),
    st.builds(Weighted, critical=_weights, high=_weights, medium=_weights, low=_weights),
)

plain_orders: Final = st.sampled_from(
    [
        Strict().tables(1, lambda: 0.0),
        Promote(low=SECOND, medium=SECOND, high=SECOND).tables(1, lambda: 0.0),
        HeadStart(critical=3 * SECOND, high=2 * SECOND, medium=SECOND).tables(1, lambda: 0.0),
        Weighted().tables(2, lambda: 0.9),
    ]
)
"""One order of each policy, with steps as long as a test's time takes."""


def mostly_late(things: Sequence[Thing]) -> SearchStrategy[Thing]:
    """One of these, more often one of the last few."""
    return st.sampled_from(things[-4:]) | st.sampled_from(things)


class ClaimCase(Struct, frozen=True, kw_only=True):
    """Ready tasks and a claim upon them."""

    tasks: list[Task]
    claim: Claim


@st.composite
def tables(draw: DrawFn, limit: int) -> tuple[Table, ...]:
    """The tables of some policy; fewer than the claim has turns, at times."""
    policy = draw(policies)
    luck = draw(st.randoms(use_true_random=False))
    made = policy.tables(max(1, limit), luck.random)
    return made[: draw(st.integers(1, len(made)))]


@st.composite
def lines(draw: DrawFn) -> ClaimCase:
    """Ready tasks in several queues, many of them equal but for their ids, and a claim for some of them."""
    numbers = draw(st.lists(st.integers(0, 999), min_size=1, max_size=24, unique=True))
    tasks = [
        a_task(
            id=an_id(number=number),
            queue=draw(queues),
            type=draw(types),
            requires=draw(capabilities),
            priority=draw(priorities),
            ready_at=NOW - draw(st.integers(-2, WIDEST)),
        )
        for number in numbers
    ]
    limit = draw(st.integers(0, 30))
    return ClaimCase(tasks=tasks, claim=draw(claims(NOW, limit, tables(limit))))


_paces: Final = st.none() | st.sampled_from([Rate(1, SECOND).pace, Rate(2, SECOND).pace, Rate(60, SECOND).pace])
_limits: Final = st.builds(Limit, running=st.none() | st.integers(1, 3), pace=_paces)

_shares: Final = st.none() | st.builds(Share, of=st.integers(2, 5), everywhere=st.booleans())

no_limits: Final[SearchStrategy[Limits | None]] = st.none()
some_limits: Final[SearchStrategy[Limits | None]] = (
    st.none() | st.none() | st.builds(Limits, queue=_limits, types=st.dictionaries(types, _limits), key=_limits)
)
"""The limits of a queue, or none."""


@st.composite
def _queue_orders(
    draw: DrawFn, queue: str, orders: SearchStrategy[tuple[Table, ...]], limits: SearchStrategy[Limits | None]
) -> QueueOrder:
    """One queue of a claim; where one table serves all turns, promoted tasks may share places with others."""
    drawn = draw(orders)
    share = draw(_shares) if len(drawn) == 1 else None
    passed = 0 if share is None else draw(st.integers(0, share.due))
    return QueueOrder(queue, drawn, draw(limits), share, passed)


@st.composite
def claims(
    draw: DrawFn,
    now: Instant,
    limit: int,
    orders: SearchStrategy[tuple[Table, ...]] = plain_orders,
    limits: SearchStrategy[Limits | None] = no_limits,
) -> Claim:
    """Claims for up to so many tasks: wide ones as often as narrow ones."""
    served = draw(st.just(QUEUES) | st.lists(queues, min_size=1, unique=True))
    return Claim(
        queues=tuple(draw(_queue_orders(queue, orders, limits)) for queue in served),
        worker=draw(st.sampled_from(WORKERS)),
        token=a_token(),
        now=now,
        lease=LEASE,
        grace=GRACE,
        limit=limit,
        capabilities=draw(st.just(frozenset(CAPABILITIES)) | capabilities),
        types=draw(st.none() | st.none() | st.frozensets(types)),
        excluded_types=draw(st.just(frozenset[str]()) | st.frozensets(types, max_size=2)),
    )


_failures: Final = st.builds(Failure, type=st.sampled_from(["ValueError", "OSError"]), message=st.text(max_size=3))

outcomes: Final[SearchStrategy[Outcome]] = st.one_of(
    st.builds(Completed, st.none() | st.binary(max_size=3)),
    st.builds(Failed, failure=_failures, retriable=st.booleans(), after=st.sampled_from([None, 0, SECOND])),
    st.just(TimedOut()),
    st.builds(Crashed, _failures),
    st.builds(HandedBack, st.sampled_from([0, SECOND])),
    st.just(CancelConfirmed()),
)


class LimitedLine(Struct, frozen=True, kw_only=True):
    """Ready tasks, claims upon them under limits, one after the other, and how what the claims take ends."""

    tasks: list[Task]
    claims: list[Claim]
    outcome: Outcome


@st.composite
def limited_lines(draw: DrawFn) -> LimitedLine:
    """Ready tasks of few queues and keys, and claims under limits that tend to hold some of them."""
    tasks = [
        a_task(
            queue=draw(st.sampled_from(QUEUES[:2])),
            type=draw(types),
            requires=draw(capabilities),
            priority=draw(priorities),
            ready_at=NOW - draw(st.integers(0, WIDEST)),
            concurrency_key=draw(st.sampled_from([None, "c", "d"])),
        )
        for _ in range(draw(st.integers(1, 12)))
    ]
    # Limits seldom change between two claims, and that they do is of interest now and then.
    usual = [draw(some_limits), draw(some_limits)]
    moments = sorted(draw(st.lists(st.sampled_from([0, 1, SECOND // 2, SECOND, 3 * SECOND]), min_size=1, max_size=4)))
    asked = [
        draw(claims(NOW + moment, limit, tables(limit), st.sampled_from([usual[0], *usual])))
        for moment, limit in [(moment, draw(st.integers(1, 8))) for moment in moments]
    ]
    return LimitedLine(tasks=tasks, claims=asked, outcome=draw(outcomes))


_fields: Final[dict[str, SearchStrategy[Any]]] = {
    "states": st.frozensets(st.sampled_from(State), min_size=1, max_size=3),
    "queue": queues,
    "type": types,
    "priority": priorities,
    "worker": st.sampled_from(WORKERS),
    "tag": st.sampled_from(TAGS),
    "created_from": st.integers(NOW - 3, NOW + 3),
    "created_before": st.integers(NOW - 3, NOW + 3),
}


@st.composite
def filters(draw: DrawFn) -> Filter:
    """Filters by a few fields: those by many admit nothing."""
    asked = draw(st.lists(st.sampled_from(sorted(_fields)), max_size=3, unique=True))
    return Filter(**{name: draw(_fields[name]) for name in asked})


class TaskPlan(Struct, frozen=True, kw_only=True):
    """A task that someone may want to add."""

    number: int
    queue: str
    type: str
    requires: frozenset[str]
    priority: Priority
    state: State
    delay: Span
    key: str | None
    key_for: Span
    tags: frozenset[str]
    concurrency_key: str | None

    def task(self, now: Instant) -> Task:
        """The task wished for at this moment; the same number in the same queue is the same id."""
        return a_task(
            id=an_id(self.queue, self.number),
            queue=self.queue,
            type=self.type,
            requires=self.requires,
            priority=self.priority,
            state=self.state,
            ready_at=now + self.delay if self.state is State.SCHEDULED else now,
            alarm=now + self.delay if self.state.ended else None,
            created_at=now,
            max_retries=1,
            max_crashes=1,
            key=self.key,
            key_until=now + self.key_for if self.key is not None else None,
            tags=sorted(self.tags),
            # The first queue has none, so that what holds without them is looked at as often as what holds with them.
            concurrency_key=None if self.queue == QUEUES[0] else self.concurrency_key,
        )


wishes: Final[SearchStrategy[TaskPlan]] = st.builds(
    TaskPlan,
    number=st.integers(0, 12),
    queue=st.just("a") | queues,
    type=types,
    requires=capabilities,
    priority=priorities,
    state=st.just(State.QUEUED) | st.sampled_from([State.QUEUED, State.SCHEDULED, *sorted(ENDED)]),
    delay=st.sampled_from([1, SECOND, DAY]),
    key=st.sampled_from([None, None, "k", "b:k"]),
    key_for=st.sampled_from([1, SECOND, DAY]),
    tags=st.frozensets(st.sampled_from(TAGS)),
    concurrency_key=st.sampled_from([None, None, "c", "d", "c d"]),
)

_requests: Final[dict[str, SearchStrategy[Event]]] = {
    CancelAsked.name: st.just(CancelAsked()),
    AlarmRang.name: st.just(AlarmRang()),
    Replayed.name: st.builds(Replayed, reset_retries=st.booleans(), priority=st.none() | priorities),
    Prioritized.name: st.builds(Prioritized, priorities),
    Discarded.name: st.just(Discarded()),
    Purged.name: st.just(Purged()),
}


def requests_to(state: State) -> SearchStrategy[Event]:
    """What someone who does not hold a task may do to one in this state."""
    return st.one_of([events for name, events in _requests.items() if (state, name) in TRANSITIONS])


Example = TypeVar("Example")

STEADY = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same examples at every run: a store that passes keeps passing."""


async def for_examples(
    examples: SearchStrategy[Example],
    check: Callable[[Example], Awaitable[None]],
    settings: settings = STEADY,
) -> None:
    """Check examples until one fails, and then the smallest that fails.

    A store belongs to the event loop that opened it, so the examples are made in a thread and each is checked in the
    loop.
    """
    loop = asyncio.get_running_loop()

    async def check_in_loop(example: Example) -> None:
        await check(example)

    @settings
    @given(examples)
    def run(example: Example) -> None:
        asyncio.run_coroutine_threadsafe(check_in_loop(example), loop).result()

    await asyncio.to_thread(run)
