"""Tasks that no live worker could run are known at once, by name, wherever somebody looks."""

from __future__ import annotations

from fairlead.admin.stats import standing, stats_of
from fairlead.core.explain.explanation import CauseCode
from fairlead.core.health.diagnosis import Level
from fairlead.core.health.unserved import SERVED
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Settings
from fairlead.engine.engine import Submitted
from fairlead.engine.submit import FRESH
from fairlead.storage.memory import MemoryStore
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record
from tests.engine.building import Bench, a_wish

ONE, TWO = WorkerId("one"), WorkerId("two")


async def join(
    bench: Bench, worker: WorkerId = ONE, types: tuple[str, ...] = ("mail",), capabilities: tuple[str, ...] = ()
) -> None:
    await bench.engine.worker_records.register(
        worker, queues=["default"], capacity=1, types=types, capabilities=capabilities
    )


async def unserved(bench: Bench) -> list[tuple[str | None, str, int]]:
    (queue,) = (await bench.engine.stats()).queues.values()
    assert queue.unserved.tasks == sum(kind.tasks for kind in queue.unserved.first)
    return [(kind.type, str(kind.lack.code), kind.tasks) for kind in queue.unserved.first]


async def test_they_are_known_at_once_and_by_name(any_store: Store) -> None:
    bench = Bench(store=any_store)
    for _ in range(2):
        await bench.submit(type="render")
    await bench.submit(type="mail", requires=frozenset({"gpu"}))
    await bench.submit(type="mail")
    assert await unserved(bench) == [(None, "no_workers", 4)]
    await join(bench)
    assert await unserved(bench) == [("render", "type_unknown", 2), ("mail", "capability_missing", 1)]
    await join(bench, TWO, types=("mail", "render"), capabilities=("gpu",))
    assert (await bench.engine.stats()).queues["default"].unserved == SERVED


async def test_the_doctor_says_what_is_missing_and_what_to_start() -> None:
    bench = Bench()
    await bench.submit(type="render")
    await bench.submit(type="mail", requires=frozenset({"eu", "gpu"}))
    await join(bench, capabilities=("eu",))
    found = {each.what: each for each in (await bench.engine.diagnose()).findings}
    mail, render = found["tasks of mail in default"], found["tasks of render in default"]
    assert mail.level is render.level is Level.YELLOW
    assert mail.value == "1 task is ready, and no worker of it with a handler for mail has gpu"
    assert mail.remedy == "start one: `fairlead worker app.tasks:app --queues default --capabilities eu,gpu`"
    assert render.value == "1 task is ready, and no worker of it has a handler for render"


async def test_the_doctor_counts_a_flood_of_types_and_names_few() -> None:
    bench = Bench()
    await join(bench)
    for number in range(25):
        await bench.submit(type=f"type-{number:02}")
    found = [each for each in (await bench.engine.diagnose()).findings if "default" in each.what]
    assert len(found) == 11
    assert found[-1].value == "nor could any worker run the ready tasks of 15 more task types or capability sets"


async def test_what_is_paused_waits_on_purpose() -> None:
    bench = Bench()
    await join(bench)
    await bench.submit(type="render")
    await bench.engine.queues.pause_type("render")
    bench.engine.queue_cache.expire()
    assert await unserved(bench) == []
    await bench.engine.queues.resume_type("render")
    await bench.engine.queues.pause("default")
    bench.engine.queue_cache.expire()
    assert await unserved(bench) == []


async def test_a_worker_that_starts_again_is_not_missed_meanwhile() -> None:
    bench = Bench()
    await join(bench)
    submitted = await bench.engine.submit(a_wish(type="mail"))
    assert await unserved(bench) == [] and await bench.engine.doubts(submitted) == ()
    await bench.engine.worker_records.leave(ONE)
    bench.clock.advance(FRESH)
    assert await unserved(bench) == [] and await bench.engine.doubts(submitted) == ()
    await join(bench, TWO)
    bench.clock.advance(Settings().lease)
    await bench.engine.worker_records.beat(TWO, running=0)
    assert await unserved(bench) == []


async def test_one_that_does_not_start_again_is_missed_after_a_lease_length() -> None:
    bench = Bench()
    await join(bench)
    submitted = await bench.engine.submit(a_wish(type="mail"))
    assert await unserved(bench) == []
    await bench.engine.worker_records.leave(ONE)
    bench.clock.advance(Settings().lease)
    assert await unserved(bench) == [(None, "no_workers", 1)]
    assert [each.code for each in await bench.engine.doubts(submitted)] == [CauseCode.NO_WORKERS]


async def test_what_nobody_ever_ran_is_told_at_once_whoever_left() -> None:
    bench = Bench()
    await join(bench)
    await bench.engine.stats()
    await bench.engine.worker_records.leave(ONE)
    await bench.submit(type="render")
    assert await unserved(bench) == [("render", "type_unknown", 1)]


async def test_a_flood_of_types_looks_at_the_workers_once() -> None:
    """However many types are submitted within five seconds, and what is remembered of them has a bound."""

    class CountingStore(MemoryStore):
        looks = 0

        async def scan(self, kind: str) -> list[Record]:
            self.looks += kind == "worker"
            return await super().scan(kind)

    store = CountingStore()
    bench = Bench(store=store)
    await join(bench)
    store.looks = 0
    for number in range(2_000):
        submitted = await bench.engine.submit(a_wish(type=f"type-{number}"))
        (doubt,) = await bench.engine.doubts(Submitted(submitted.task))
        assert doubt.code == CauseCode.TYPE_UNKNOWN
    assert store.looks == 1


async def test_a_server_tells_its_client_all_of_it() -> None:
    bench = Bench()
    await join(bench)
    await bench.submit(type="mail", requires=frozenset({"gpu"}))
    told = await bench.engine.stats()
    assert stats_of(standing(told)).queues["default"].unserved == told.queues["default"].unserved != SERVED
