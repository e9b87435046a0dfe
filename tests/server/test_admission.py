"""Admission under a flood: tiers, rates that several servers share, and shedding, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.app.config import load
from fairlead.client.calls import error_in
from fairlead.client.http.transport import Address
from fairlead.core.errors import AdmissionRefused, InvalidSettings, QueueFull, StoreUnavailable
from fairlead.core.instant import HOUR, MINUTE, SECOND, Instant
from fairlead.core.queues.admission import STANDARD, AdmissionSettings, Tiers
from fairlead.core.queues.limits import Rate
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority, Task
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.engine.shared_rates import KINDS
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.values import Receipt, Tally
from fairlead.wire.endpoint import Problem
from tests.server.serving import Service
from tests.server.test_submit_batcher import serving
from tests.servers.stores import Place, place
from tests.worker.building import eventually

__all__ = ["place"]

PATH: Final = "/api/v1/tasks"
BATCH: Final = "/api/v1/tasks/batch"


class Servers:
    """Several servers over one store."""

    def __init__(self, place: Place, stack: AsyncExitStack) -> None:
        self._place = place
        self._stack = stack
        self._memory: Store | None = None

    async def open(self, allow: tuple[str, ...] = (), **admission: Any) -> Service:
        """One more, on the same store."""
        if self._place.url.startswith("memory"):
            store = self._memory = self._memory or await open_store(self._place.url)
        else:
            store = await open_store(self._place.url, journal=self._place.journal)
        settings = ServerSettings(rate_limit=0, admission=AdmissionSettings(**admission))
        service = Service(store, Settings(admission_allow=allow), settings)
        return await self._stack.enter_async_context(service)


@pytest.fixture
async def servers(place: Place) -> AsyncIterator[Servers]:
    """Servers over one empty store of each kind."""
    async with AsyncExitStack() as stack:
        yield Servers(place, stack)


async def _keyed(service: Service, name: str = "test", tenant: str | None = None) -> dict[str, str]:
    made = await Keyring(service.engine).create(name, [Role.SUBMIT], tenant=tenant)
    return {"authorization": f"Bearer {made.text}"}


async def _statuses(service: Service, number: int, headers: Mapping[str, str] | None = None, **wish: Any) -> list[int]:
    wish = {"task_type": "echo", **wish}
    return [(await service.client.post(PATH, json=wish, headers=headers)).status_code for _ in range(number)]


def _refused(service: Service) -> dict[str, Any]:
    (samples,) = [each for family, each in service.metrics.collect() if family.name == "fairlead_submits_refused_total"]
    return {labels[0]: count for labels, count in samples}


# Tiers over all queues


async def test_above_the_marks_less_and_less_is_taken(servers: Servers) -> None:
    service = await servers.open(("tenant:vip",), tiers=Tiers(3, 5))
    await service.submit(queue="a")
    await service.submit(queue="b", delay_seconds=1000)
    await service.submit(queue="c", priority="low")
    refused = await service.client.post(PATH, json={"task_type": "echo"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    problem = refused.json()
    assert problem["type"].endswith("too-many-waiting") and "this one is medium" in problem["detail"]
    assert problem["remedy"] == "try again in 5 s, or add workers"
    assert await _statuses(service, 1, priority="low") == [429]
    assert await _statuses(service, 3, priority="high") == [201, 201, 429]
    assert await _statuses(service, 1, priority="critical") == [429]
    assert await _statuses(service, 2, tenant="vip", priority="low") == [201, 201]
    assert _refused(service) == {"urgent_only": 2, "listed_only": 2}
    metrics = (await service.client.get("/metrics")).text
    assert 'fairlead_submits_refused_total{rule="urgent_only"} 2' in metrics


async def test_what_others_submit_or_take_is_known_a_second_later(servers: Servers) -> None:
    one, other = await servers.open(tiers=Tiers(2)), await servers.open(tiers=Tiers(2))
    assert await _statuses(one, 2) == [201, 201]
    assert await _statuses(other, 1) == [429], "the first count is taken before the first answer"
    assert len(await one.claim(limit=2)) == 2
    other.advance(1)
    assert await _statuses(other, 3) == [201, 201, 429]


async def test_an_allow_list_names_keys(servers: Servers) -> None:
    service = await servers.open(("key:ops",), tiers=Tiers(None, 1))
    ops, other = await _keyed(service, "ops"), await _keyed(service, "other")
    service.advance(10)
    assert await _statuses(service, 1, other) == [201]
    assert await _statuses(service, 1, other, priority="critical") == [429]
    assert await _statuses(service, 2, ops, priority="low") == [201, 201]


async def test_the_priority_of_its_queue_counts_for_a_task_that_names_none(servers: Servers) -> None:
    service = await servers.open(tiers=Tiers(1))
    await service.engine.queues.change("urgent", priority="high")
    assert await _statuses(service, 1) == [201]
    assert await _statuses(service, 1) == [429]
    assert await _statuses(service, 1, queue="urgent") == [201]


async def test_an_idempotent_repeat_and_a_bad_task_do_not_count(servers: Servers) -> None:
    service = await servers.open(tiers=Tiers(3), rates=(Rate(3, MINUTE),))
    assert await _statuses(service, 2, idempotency_key="once") == [201, 200]
    assert await _statuses(service, 3, after=["0" * 12 + "8" + "0" * 3 + "8" + "0" * 15]) == [422] * 3
    assert await _statuses(service, 3) == [201, 201, 429]


# Tiers of single queues: exact, whoever submits


async def test_the_tiers_of_a_queue_hold_for_that_queue(servers: Servers) -> None:
    service = await servers.open(("tenant:vip", "key:ops"))
    await _keyed(service, "ops")
    response = await service.client.patch("/api/v1/queues/busy", json={"urgent_above": 2, "listed_above": 3})
    assert response.status_code == 401, "keys are there now"
    ops, other = await _keyed(service, "ops"), await _keyed(service, "other")
    await service.engine.queues.change("busy", urgent_above=2, listed_above=3)
    service.advance(10)
    assert await _statuses(service, 3, other, queue="busy") == [201, 201, 429]
    assert await _statuses(service, 2, other, queue="busy", priority="critical") == [201, 429]
    assert await _statuses(service, 1, ops, queue="busy", priority="low") == [201]
    assert await _statuses(service, 1, other, queue="busy", priority="low", tenant="vip") == [201]
    assert await _statuses(service, 1, other) == [201], "other queues take all"
    assert _refused(service) == {"urgent_only": 1, "listed_only": 1}


async def test_tiers_of_a_queue_are_set_and_shown_over_http(servers: Servers) -> None:
    service = await servers.open()
    response = await service.client.patch("/api/v1/queues/busy", json={"urgent_above": 2, "listed_above": 3})
    assert response.status_code == 200, response.text
    shown = (await service.get("/api/v1/queues/busy"))["settings"]
    assert (shown["urgent_above"], shown["listed_above"]) == (2, 3)
    wrong = await service.client.patch("/api/v1/queues/busy", json={"urgent_above": 4})
    assert wrong.status_code == 422 and "lower the first or raise the second" in wrong.text
    service.advance(2)
    assert await _statuses(service, 3, queue="busy") == [201, 201, 429]


async def test_a_batch_is_held_to_the_tier_of_each_task(servers: Servers) -> None:
    service = await servers.open(("tenant:vip",))
    await service.engine.queues.change("busy", urgent_above=2, listed_above=4, bound=5)
    wishes: Sequence[tuple[str, str | None]] = [
        ("low", None), ("high", None), ("low", None), ("high", None), ("low", "vip"), ("critical", None),
        ("low", "vip"), ("low", "vip"),
    ]  # fmt: skip
    tasks = [
        {"task_type": str(at), "queue": "busy", "priority": priority, "tenant": tenant}
        for at, (priority, tenant) in enumerate(wishes)
    ]
    told = (await service.post(BATCH, tasks, 207))["results"]
    # All are held to the lowest bound first, then those that are refused to their own.
    assert [each["status"] for each in told] == [201, 201, 429, 201, 201, 429, 201, 429]
    assert [each["problem"]["type"].rpartition("#")[2] for each in told if "problem" in each] == [
        "too-many-waiting", "too-many-waiting", "queue-full",
    ]  # fmt: skip


async def test_what_waits_for_a_task_of_a_higher_tier_is_stored_with_it(servers: Servers) -> None:
    service = await servers.open()
    await service.engine.queues.change("busy", urgent_above=1)
    tasks = [
        {"task_type": "a", "queue": "busy", "priority": "low"},
        {"task_type": "b", "queue": "busy", "priority": "high"},
        {"task_type": "c", "queue": "busy", "priority": "high", "after": [1]},
    ]
    results = (await service.post(BATCH, tasks))["results"]
    assert [each["status"] for each in results] == [201, 201, 201]


async def test_tiers_of_a_queue_hold_without_a_server(servers: Servers) -> None:
    engine = (await servers.open(("tenant:vip",))).engine
    await engine.queues.change("busy", urgent_above=1)
    await engine.submit(Submission(type="echo", queue="busy"))
    with pytest.raises(AdmissionRefused, match="only critical and high") as refused:
        await engine.submit(Submission(type="echo", queue="busy"))
    assert refused.value.rule == "urgent_only"
    await engine.submit(Submission(type="echo", queue="busy", priority=Priority.HIGH))
    await engine.submit(Submission(type="echo", queue="busy", tenant="vip"))
    await engine.queues.change("busy", urgent_above=None, bound=1)
    with pytest.raises(QueueFull):
        await engine.submit(Submission(type="echo", queue="busy", tenant="vip"))


async def test_many_at_once_never_pass_a_mark_of_a_queue_together(servers: Servers) -> None:
    first, second = await servers.open(), await servers.open()
    await first.engine.queues.change("busy", urgent_above=10)
    second.advance(2)
    posts = [_statuses(each, 1, queue="busy") for each in [first, second] * 15]
    statuses = [status for each in await asyncio.gather(*posts) for status in each]
    assert statuses.count(201) == 10 and statuses.count(429) == 20


# Rates that all servers share


async def test_a_rate_is_shared_by_all_servers_of_a_store(servers: Servers) -> None:
    three = [await servers.open(rates=(Rate(100, MINUTE), Rate(150, HOUR))) for _ in range(3)]
    headers = await _keyed(three[0])
    for each in three:
        each.advance(10)
    accepted = 0
    for at in range(150):
        (status,) = await _statuses(three[at % 3], 1, headers)
        accepted += status == 201
    assert 95 <= accepted <= 105
    refused = await three[0].client.post(PATH, json={"task_type": "echo"}, headers=headers)
    assert refused.status_code == 429 and refused.json()["type"].endswith("rate-limited")
    assert "100 in a minute over all servers" in refused.json()["detail"]
    assert 1 <= int(refused.headers["retry-after"]) <= 63
    for each in three:
        each.advance(70)
    for at in range(90):
        (status,) = await _statuses(three[at % 3], 1, headers)
        accepted += status == 201
    assert 145 <= accepted <= 157, "the hour counts too"


async def test_servers_that_ask_at_once_do_not_pass_a_rate_together(servers: Servers) -> None:
    three = [await servers.open(rates=(Rate(60, MINUTE),)) for _ in range(3)]
    headers = await _keyed(three[0])
    posts = [_statuses(each, 10, headers) for each in three * 4]
    accepted = [status for each in await asyncio.gather(*posts) for status in each].count(201)
    assert 50 <= accepted <= 63


async def test_most_requests_ask_nobody_whether_they_pass(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(1_000, HOUR),))
    assert set(await _statuses(service, 200)) == {201}
    rates = service.state.admission._rates
    assert rates.asked <= 20
    assert set(await _statuses(service, 1, tenant="acme")) == {201}
    tasks = [{"task_type": "echo"}] * 1_000
    await service.post(BATCH, tasks, 207)
    before = rates.asked
    assert set(await _statuses(service, 100)) == {429}
    assert rates.asked == before, "nor do those that are refused"


async def test_a_batch_counts_its_tasks_and_is_taken_in_part(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(5, MINUTE),))
    told = await service.post(BATCH, [{"task_type": "echo"}] * 8, 207)
    assert [each["status"] for each in told["results"]] == [201] * 5 + [429] * 3
    assert told["results"][7]["problem"]["type"].endswith("rate-limited")
    assert _refused(service) == {"key_rate": 3}


async def test_who_waits_for_a_refused_task_is_refused_and_positions_stay_right(servers: Servers) -> None:
    service = await servers.open(tiers=Tiers(1))
    tasks = [
        {"task_type": "a", "priority": "high"},
        {"task_type": "b"},
        {"task_type": "c", "priority": "high", "after": [1]},
        {"task_type": "d", "priority": "high"},
        {"task_type": "e", "priority": "high", "after": [3]},
    ]
    results = (await service.post(BATCH, tasks, 207))["results"]
    assert [each["status"] for each in results] == [201, 429, 422, 201, 201]
    shown = await service.show(results[4]["task"]["task_id"])
    assert shown["after"] == [results[3]["task"]["task_id"]]


async def test_a_stream_of_lines_counts_each_line(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(2, MINUTE),))
    lines = b'{"task_type":"echo"}\n' * 4
    answer = await service.client.post(BATCH, content=lines, headers={"content-type": "application/x-ndjson"})
    assert [line.count('"status":201') for line in answer.text.splitlines()] == [1, 1, 0, 0]


async def test_a_tenant_is_counted_over_all_keys_and_a_refusal_costs_the_key_nothing(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(4, MINUTE),))
    one, two, free = await _keyed(service, "one", "acme"), await _keyed(service, "two", "acme"), await _keyed(service)
    service.advance(10)
    assert await _statuses(service, 3, one) == [201] * 3
    assert await _statuses(service, 2, two) == [201, 429]
    assert await _statuses(service, 1, free, tenant="acme") == [429], "on whose behalf it is, counts"
    assert await _statuses(service, 5, free) == [201] * 4 + [429]
    assert _refused(service) == {"tenant_rate": 2, "key_rate": 1}


async def test_a_queue_that_is_bound_counts_for_its_tenant(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(2, MINUTE),))
    await service.engine.queues.change("acmes", tenant="acme")
    free, bound = await _keyed(service), await _keyed(service, "acme", "acme")
    service.advance(10)
    assert await _statuses(service, 2, free, queue="acmes") == [201, 201]
    assert await _statuses(service, 1, bound) == [429]


async def test_a_schedule_that_is_run_now_counts_and_a_replay_does_not(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(2, MINUTE),), tiers=Tiers(50))
    request = {"name": "report", "cron": "@daily", "task": {"task_type": "make_report"}}
    await service.post("/api/v1/schedules", request, 201)
    first = await service.post("/api/v1/schedules/report/run", None, 201)
    await service.post("/api/v1/schedules/report/run", None, 201)
    refused = await service.post("/api/v1/schedules/report/run", None, 429)
    assert refused["type"].endswith("rate-limited")
    await service.delete(f"{PATH}/{first['task_id']}")
    await service.post(f"/api/v1/dlq/{first['task_id']}/replay")
    await service.post("/api/v1/schedules/none/run", None, 404)


async def test_with_everything_off_nothing_is_asked_or_kept(servers: Servers) -> None:
    service = await servers.open()
    assert set(await _statuses(service, 200)) == {201}
    assert not service.state.admission.on
    assert not any([await service.engine.store.scan(kind) for kind in KINDS])


# How rates are shared


async def test_a_damaged_record_of_a_rate_is_forgotten(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(3, MINUTE),))
    assert await _statuses(service, 1) == [201]
    store = service.engine.store
    (record,) = [each for kind in KINDS for each in await store.scan(kind)]
    await store.put(record.kind, record.name, b"\xff\x00broken")
    assert await _statuses(service, 4) == [201, 201, 201, 429], "what was granted before was lost with it"


async def test_a_clock_that_steps_back_shuts_nobody_out(servers: Servers) -> None:
    service = await servers.open(rates=(Rate(2, MINUTE),))
    assert await _statuses(service, 3) == [201, 201, 429]
    service.clock.jump(-3 * HOUR)
    assert await _statuses(service, 3) == [201, 201, 429]
    service.clock.jump(6 * HOUR)
    assert await _statuses(service, 3) == [201, 201, 429]


# A server over its own limits


class SlowStore(MemoryStore):
    """A store that answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.tallies = 0

    async def add(
        self, tasks: Sequence[Task], *, now: Instant | None = None, bounds: Mapping[str, int]
    ) -> list[Receipt]:
        await self.free.wait()
        return await super().add(tasks, now=now, bounds=bounds)

    async def tally(self) -> Tally:
        self.tallies += 1
        return await super().tally()


async def test_a_server_sheds_what_it_cannot_work_off() -> None:
    store = SlowStore()
    settings = ServerSettings(rate_limit=0, admission=AdmissionSettings(in_flight=2))
    async with Service(store, server=settings) as service:
        waiting = [asyncio.create_task(_statuses(service, 1)) for _ in range(2)]
        await eventually(lambda: service.state.admission.in_flight == 2)
        shed = await service.client.post(PATH, json={"task_type": "echo"})
        assert (shed.status_code, shed.headers["retry-after"]) == (503, "1")
        assert shed.json()["type"].endswith("overloaded")
        assert (await service.post(BATCH, [{"task_type": "echo"}], 207))["results"][0]["status"] == 503
        assert await service.get("/api/v1/workers"), "whoever looks is answered"
        store.free.set()
        assert [await each for each in waiting] == [[201], [201]]
        assert service.state.admission.in_flight == 0
        assert await _statuses(service, 3) == [201] * 3
        assert _refused(service) == {"overloaded": 2}


async def test_what_is_cut_off_is_worked_on_no_more() -> None:
    store = SlowStore()
    settings = ServerSettings(rate_limit=0, admission=AdmissionSettings(in_flight=1, tiers=Tiers(2)))
    async with Service(store, server=settings) as service:
        waiting = asyncio.create_task(_statuses(service, 1))
        await eventually(lambda: service.state.admission.in_flight == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert service.state.admission.in_flight == 0
        store.free.set()
        service.advance(2)
        assert set(await _statuses(service, 1)) == {201}


async def test_the_waiting_are_counted_once_a_second_at_most() -> None:
    store = SlowStore()
    store.free.set()
    settings = ServerSettings(rate_limit=0, admission=AdmissionSettings(tiers=Tiers(10)))
    async with Service(store, server=settings) as service:
        await service.submit()
        before = store.tallies
        await asyncio.gather(*(_statuses(service, 1) for _ in range(50)))
        assert store.tallies == before
        service.advance(1)
        await asyncio.gather(*(_statuses(service, 1) for _ in range(50)))
        assert store.tallies <= before + 2


async def test_at_once_no_more_are_taken_than_a_mark_has_room_for() -> None:
    settings = ServerSettings(rate_limit=0, admission=AdmissionSettings(tiers=Tiers(10)))
    async with Service(MemoryStore(), server=settings) as service:
        statuses = await asyncio.gather(*(_statuses(service, 1) for _ in range(50)))
        assert statuses.count([201]) == 10


async def test_submits_on_the_short_way_are_held_to_the_same() -> None:
    engine = AdminEngine(MemoryStore(), clock=ManualClock())
    admission = AdmissionSettings(rates=(Rate(5, MINUTE),), tiers=Tiers(50), in_flight=100)
    async with serving(engine, ServerSettings(rate_limit=0, admission=admission)) as (_, client):
        posts = [client.post(PATH, json={"task_type": "echo"}) for _ in range(20)]
        answers = await asyncio.gather(*posts)
    assert sorted(each.status_code for each in answers) == [201] * 5 + [429] * 15
    refused = next(each for each in answers if each.status_code == 429)
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) > 1 and refused.json()["type"].endswith("rate-limited")


async def test_of_those_at_hand_a_server_sheds_what_is_too_many() -> None:
    store = SlowStore()
    engine = AdminEngine(store, clock=ManualClock())
    settings = ServerSettings(rate_limit=0, admission=AdmissionSettings(in_flight=3))
    async with serving(engine, settings) as (server, client):
        waiting = [asyncio.create_task(client.post(PATH, json={"task_type": "echo"})) for _ in range(8)]
        await eventually(lambda: sum(each.done() for each in waiting) == 5)
        assert {each.result().status_code for each in waiting if each.done()} == {503}
        store.free.set()
        assert sorted([(await each).status_code for each in waiting]) == [201] * 3 + [503] * 5
        assert server.state.admission.in_flight == 0


# The configuration


def test_one_setting_turns_on_the_standard_numbers() -> None:
    assert not load({}, {}).admission_settings()
    assert load({"admission": "true"}, {}).admission_settings() == STANDARD


def test_each_number_may_be_said() -> None:
    said = {"admission-rates": "10/s, 100/m", "admission-urgent-above": "7", "admission-allow": "key:ops, tenant:a b"}
    configuration = load(said, {})
    assert configuration.admission_settings() == AdmissionSettings(
        tiers=Tiers(7), rates=(Rate(10, SECOND), Rate(100, MINUTE))
    )
    assert configuration.engine_settings().admission_allow == ("key:ops", "tenant:a b")
    both = load({"admission": "true", "admission-in-flight": "9"}, {}).admission_settings()
    assert both.in_flight == 9 and both.tiers == STANDARD.tiers


@pytest.mark.parametrize("rates", ["100", "100/d", "0/s", "1/s, 2/s", "fast", "1/s;2/m"])
def test_a_rate_that_cannot_be_kept_is_refused(rates: str) -> None:
    with pytest.raises(InvalidSettings):
        load({"admission-rates": rates}, {}).admission_settings()


# The client


def test_a_client_raises_what_the_server_said() -> None:
    address = Address("http://127.0.0.1:8420")
    told = Problem(type="/docs#too-many-waiting", title="", status=429, detail="7 tasks wait")
    assert isinstance(error_in(told, address), AdmissionRefused)
    told = Problem(type="/docs#overloaded", title="", status=503, detail="busy")
    assert isinstance(error_in(told, address), StoreUnavailable)
