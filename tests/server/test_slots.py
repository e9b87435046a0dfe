"""Slots by kind of handler, as a worker over HTTP tells them, and as they are shown."""

from __future__ import annotations

from typing import Any, Final

from fairlead.core.identity import WorkerId
from fairlead.engine.stats import worker_stats
from fairlead.engine.worker_records import PRESENT, KindSlots, SlotUse, WorkerRecord
from tests.engine.building import a_wish
from tests.server.serving import Service
from tests.server.workers import Hand

ASYNC: Final = KindSlots(kind="async", capacity=100, types=("send",))
THREAD: Final = KindSlots(kind="thread", capacity=6, types=("resize",))
BOTH: Final[dict[str, Any]] = {
    "capacity": 106,
    "task_types": ["send", "resize"],
    "slots": [
        {"kind": "async", "capacity": 100, "types": ["send"]},
        {"kind": "thread", "capacity": 6, "types": ["resize"]},
    ],
}


async def test_a_poll_takes_only_the_types_that_it_names(in_memory: Service) -> None:
    hand = await Hand.hired(in_memory, **BOTH)
    for name in ("send", "resize", "send"):
        await in_memory.engine.submit(a_wish(type=name))
    assert [task["task_type"] for task in await hand.poll(10, task_types=["resize"])] == ["resize"]
    assert await hand.poll(10, task_types=["resize"]) == []
    assert [task["task_type"] for task in await hand.poll(10)] == ["send", "send"]


async def test_a_poll_takes_no_type_that_the_worker_did_not_register(in_memory: Service) -> None:
    hand = await Hand.hired(in_memory, task_types=["send"])
    await in_memory.engine.submit(a_wish(type="resize"))
    assert await hand.poll(10, task_types=["resize"]) == []
    assert await hand.poll(10, task_types=[]) == []
    any_type = await Hand.hired(in_memory)
    assert len(await any_type.poll(10, task_types=["resize"])) == 1


async def test_a_worker_is_shown_with_its_slots_by_kind(in_memory: Service) -> None:
    hand = await Hand.hired(in_memory, **BOTH)
    await hand.heartbeat(current_load=5, load_by_kind={"async": 2, "thread": 3})
    shown = await in_memory.get(f"/api/v1/workers/{hand.id}")
    assert (shown["running"], shown["capacity"]) == (5, 106)
    assert [(each["kind"], each["running"], each["capacity"]) for each in shown["slots"]] == [
        ("async", 2, 100),
        ("thread", 3, 6),
    ]
    workers = (await in_memory.get("/api/v1/queue/stats"))["workers"]
    assert workers["slots"] == {"async": {"capacity": 100, "used": 2}, "thread": {"capacity": 6, "used": 3}}


async def test_a_worker_with_one_limit_is_shown_with_that(in_memory: Service) -> None:
    hand = await Hand.hired(in_memory, capacity=4)
    await hand.heartbeat(current_load=1)
    assert (await in_memory.get(f"/api/v1/workers/{hand.id}"))["slots"] == []
    assert (await in_memory.get("/api/v1/queue/stats"))["workers"]["slots"] == {}


async def test_a_suggestion_counts_the_slots_that_the_tasks_of_the_queue_need(in_memory: Service) -> None:
    await Hand.hired(in_memory, **BOTH)
    assert await capacity(in_memory) == 106
    await in_memory.engine.submit(a_wish(type="resize"))
    assert await capacity(in_memory) == 6
    await in_memory.engine.submit(a_wish(type="send"))
    assert await capacity(in_memory) == 106


async def capacity(service: Service) -> float:
    answer = await service.get("/api/v1/autoscale?queue=default")
    return float(answer["capacity_per_worker"])


def a_record(**what: Any) -> WorkerRecord:
    return WorkerRecord(id=WorkerId("w"), name="w", queues=("default",), capacity=106, since=0, seen_at=0, **what)


def test_a_record_of_an_earlier_version_has_one_limit() -> None:
    record = a_record()
    # What has no slots is written as it was before there were any.
    assert b"slots" not in PRESENT.write(record)
    assert PRESENT.decode(PRESENT.write(record)) == record
    assert record.capacity_for({"send"}) == 106


def test_types_of_no_kind_that_is_known_count_as_all() -> None:
    record = a_record(slots=(ASYNC, THREAD))
    assert [record.capacity_for({task_type}) for task_type in ("resize", "send", "new")] == [6, 100, 106]
    assert record.capacity_for({"send", "resize"}) == record.capacity_for(set()) == 106
    stats = worker_stats([record, record])
    assert stats.slots == {
        "async": SlotUse(capacity=200, used=0),
        "thread": SlotUse(capacity=12, used=0),
    }


def test_the_kind_that_is_busiest_says_how_much_is_in_use() -> None:
    full = KindSlots(kind="thread", capacity=6, running=6, types=("resize",))
    assert worker_stats([a_record(slots=(ASYNC, full), running=6)]).used_ratio == 1.0
    assert worker_stats([a_record(running=53)]).used_ratio == 0.5
    assert worker_stats([]).used_ratio == 0.0
