"""The bound of `docs/explanation/order-of-service.md` on queues that fair keys share, whatever comes meanwhile."""

from __future__ import annotations

import asyncio
import math

import hypothesis.strategies as st
from hypothesis import given, settings
from msgspec import Struct

from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE
from fairlead.core.queues.fairness import STEP
from fairlead.core.task import Priority
from fairlead.testing.strategies import STEADY
from tests.engine.building import Bench, a_wish

WEIGHTS = {"heavy": 3, "light": 0.5}
_KEYS = st.sampled_from(["heavy", "light", "A", "B", "new", "new", None])
_STEPS = st.one_of(
    st.tuples(st.just("submit"), _KEYS, st.integers(1, 6)),
    st.tuples(st.just("claim"), st.none(), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 15, 40])),
)


class Waiting(Struct):
    """A task that waits, and by which start of its line it is to be served."""

    distance: float
    """How many steps of weight 1 its turn is beyond what its line had reached."""
    since: int
    """How many starts there were before it came."""
    keys: set[str | None]
    """The keys that waited meanwhile, its own too."""

    def is_within(self, starts: int) -> bool:
        weights = sum(WEIGHTS.get(key or "", 1) for key in self.keys)
        turns = self.distance * weights + len(self.keys)
        # One of four starts may be of a promoted task.
        return starts - self.since <= math.ceil(turns * 4 / 3) + 1


async def hold(steps: list[tuple[str, str | None, int]]) -> None:
    bench = Bench(batching=False)
    await bench.engine.queues.change("default", fair="tenant", weight=WEIGHTS)
    waiting: dict[str, Waiting] = {}
    all_waiting: dict[str, str | None] = {}
    starts = made = 0
    for step, key, count in steps:
        if step == "wait":
            bench.clock.advance(count * MINUTE)
        for _ in range(count if step == "submit" else 0):
            made += 1
            name = f"new {made}" if key == "new" else key
            reached = (await bench.store.line_keys("default", Priority.MEDIUM)).turns.reached  # type: ignore[attr-defined]
            task = await bench.submit(tenant=name)
            (stored,) = await bench.store.get([task.id])
            assert stored is not None
            all_waiting[task.id] = name
            for each in waiting.values():
                each.keys.add(name)
            if name is not None:
                distance = (stored.status.turn - reached) / STEP
                waiting[task.id] = Waiting(distance, starts, set(all_waiting.values()))
        for _ in range(count if step == "claim" else 0):
            for task in await bench.engine.claim(WorkerId("w"), ["default"], limit=1):
                starts += 1
                del all_waiting[task.id]
                known = waiting.pop(task.id, None)
                assert known is None or known.is_within(starts), (known, starts)
    for each in waiting.values():
        assert each.is_within(starts)


@settings(STEADY, max_examples=150)
@given(st.lists(_STEPS, min_size=5, max_size=60))
def test_every_task_starts_within_its_bound(steps: list[tuple[str, str | None, int]]) -> None:
    asyncio.run(hold(steps))


def test_a_key_with_a_million_tasks_does_not_delay_a_key_that_comes() -> None:
    """As the page says; a hundred thousand are enough to show it."""

    async def served_second() -> None:
        bench = Bench()
        await bench.engine.queues.change("default", fair="tenant")
        for _ in range(100):
            await bench.engine.submit_many([a_wish(tenant="acme")] * 1_000)
        bench.clock.advance(90 * MINUTE)
        await bench.engine.submit_many([a_wish(tenant="umbrella")])
        assert "umbrella" in [task.spec.tenant for task in await bench.claim(2)]

    asyncio.run(served_second())
