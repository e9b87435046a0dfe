"""A queue that is bound to a tenant takes that tenant's tasks only, whatever puts them there, on every store."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.core.errors import Forbidden, ForeignTask, InvalidSettings, InvalidTask, RestoreRefused
from fairlead.core.events import Completed, Failed
from fairlead.core.health.quarantine import QUARANTINE, TASK, Quarantined
from fairlead.core.identity import WorkerId
from fairlead.core.operation import Action, NewOperation
from fairlead.core.query.parser import parse_query
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.schedule import Schedule
from fairlead.core.task import State, Task
from fairlead.engine.engine import Submitted
from fairlead.engine.events.types import Happening
from fairlead.storage.protocol import Store
from tests.engine.building import BOOM, Bench, a_wish


@pytest.fixture
def bench(any_store: Store) -> Bench:
    return Bench(store=any_store, batching=False)


@pytest.fixture
def late(bench: Bench) -> Bench:
    """Another process on the same store, which learns of a change a second later."""
    return Bench(store=bench.store, batching=False, clock=bench.clock, seed=7)


async def bind(bench: Bench, tenant: str | None = "acme") -> QueueSettings:
    return await bench.engine.queues.change("default", tenant=tenant)


async def foreign_task(bench: Bench, late: Bench, **wish: object) -> Task:
    """A task of another tenant in a queue that was bound a moment ago."""
    await late.submit(queue="elsewhere")
    await bind(bench)
    return await late.submit(**{"tenant": "umbrella", **wish})


class TestBinding:
    async def test_it_is_said_shown_and_lifted(self, bench: Bench) -> None:
        assert (await bind(bench)).tenant == "acme"
        assert await bench.engine.queues.all() == {"default": QueueSettings(tenant="acme")}
        assert (await bench.engine.queues.reset("default")).tenant == "acme"
        assert (await bind(bench, None)).tenant is None
        await bench.submit(tenant="umbrella")

    @pytest.mark.parametrize("tenant", ["", "x" * 501, 5, "\ud800"])
    async def test_what_is_no_tenant_is_refused(self, bench: Bench, tenant: str) -> None:
        with pytest.raises(InvalidSettings, match="tenant"):
            await bind(bench, tenant)

    @pytest.mark.parametrize("owner", [None, "umbrella"])
    async def test_it_is_refused_while_the_queue_holds_tasks_of_others_ended_ones_too(
        self, bench: Bench, owner: str | None
    ) -> None:
        await bench.submit(tenant="acme")
        other = await bench.submit(tenant=owner)
        with pytest.raises(InvalidSettings, match="while it holds tasks of") as refused:
            await bind(bench)
        assert "`fairlead discard -q 'queue:default -tenant:" in str(refused.value)
        await bench.engine.cancel(other.id)
        with pytest.raises(InvalidSettings, match="while it holds tasks of"):
            await bind(bench)
        await bench.engine.discard(other.id)
        await bind(bench)
        with pytest.raises(InvalidSettings, match="tasks of tenant 'acme'"):
            await bind(bench, "umbrella")

    async def test_tasks_of_others_are_found_behind_very_many_of_the_own(self, bench: Bench) -> None:
        await bench.submit(tenant="umbrella")
        bench.clock.advance(1_000_000)
        await bench.engine.submit_many([a_wish(tenant="acme")] * 1_500)
        with pytest.raises(InvalidSettings, match="tasks of tenant 'umbrella'"):
            await bind(bench)

    async def test_what_is_foreign_to_a_bound_queue_can_be_found_and_removed_as_the_refusal_says(
        self, bench: Bench
    ) -> None:
        other = await bench.submit(tenant="umbrella corp")
        await bench.engine.cancel(other.id)
        with pytest.raises(InvalidSettings) as refused:
            await bind(bench, "acme")
        query = str(refused.value).split("discard -q '")[1].split("'`")[0]
        begun = await bench.engine.operations.start(NewOperation(action=Action.DISCARD, query=parse_query(query)))
        await bench.engine.operations.step(begun.id)
        await bind(bench)


class TestSubmitting:
    async def test_a_task_that_names_no_tenant_is_the_queues(self, bench: Bench) -> None:
        await bind(bench)
        assert (await bench.submit()).spec.tenant == "acme"
        assert (await bench.submit(tenant="acme")).spec.tenant == "acme"
        assert (await bench.engine.prepare(a_wish())).spec.tenant == "acme"
        assert (await bench.submit(queue="elsewhere")).spec.tenant is None

    async def test_a_task_of_another_tenant_is_refused(self, bench: Bench) -> None:
        await bind(bench)
        for submit in (bench.engine.submit, bench.engine.prepare):
            with pytest.raises(InvalidTask, match="tenant 'umbrella' cannot submit to queue 'default'") as refused:
                await submit(a_wish(tenant="umbrella"))
            assert refused.value.field == "tenant"
            assert "acme" not in str(refused.value)

    async def test_of_many_each_is_judged_by_itself_flows_included(self, bench: Bench) -> None:
        await bind(bench)
        wishes = [a_wish(), a_wish(tenant="umbrella"), a_wish(after=(0,)), a_wish(queue="elsewhere")]
        answers = await bench.engine.submit_many(wishes)
        tenants = [answer.task.spec.tenant if isinstance(answer, Submitted) else type(answer) for answer in answers]
        assert tenants == ["acme", InvalidTask, "acme", None]

    async def test_a_key_that_the_task_of_the_queues_tenant_holds_answers_with_it(self, bench: Bench) -> None:
        await bind(bench)
        first = await bench.engine.submit(a_wish(idempotency_key="k"))
        again = await bench.engine.submit(a_wish(idempotency_key="k", tenant="acme"))
        assert (again.task.id, again.existing) == (first.task.id, True)


class TestFiringAndReplaying:
    async def test_what_a_schedule_fires_is_the_queues_tenants(self, bench: Bench) -> None:
        await bench.engine.schedules.add(Schedule(name="s", cron="@daily", submission=a_wish()))
        await bind(bench)
        assert (await bench.engine.schedules.run_now("s")).spec.tenant == "acme"

    async def test_a_schedule_of_another_tenant_is_refused_and_an_old_one_fires_nothing(self, bench: Bench) -> None:
        schedule = Schedule(name="s", cron="@daily", submission=a_wish(tenant="umbrella"))
        await bench.engine.schedules.add(schedule)
        await bind(bench)
        for put in (bench.engine.schedules.add, bench.engine.schedules.put):
            with pytest.raises(InvalidTask, match="cannot submit to queue"):
                await put(schedule)
        with pytest.raises(InvalidTask, match=r"is refused: .* cannot submit to queue"):
            await bench.engine.schedules.run_now("s")
        assert await bench.engine.find() == []

    async def test_a_foreign_task_is_not_replayed(self, bench: Bench, late: Bench) -> None:
        foreign = await foreign_task(bench, late)
        await bench.engine.cancel(foreign.id)
        with pytest.raises(ForeignTask, match="does not belong to the tenant of its queue"):
            await bench.engine.replay(foreign.id)
        begun = await bench.engine.operations.start(
            NewOperation(action=Action.REPLAY, query=parse_query("queue:default"))
        )
        done = await bench.engine.operations.step(begun.id)
        assert (done.done, done.skipped) == (0, 1)
        assert (await bench.engine.get(foreign.id)).state is State.CANCELLED

    async def test_an_own_task_is_replayed(self, bench: Bench) -> None:
        await bind(bench)
        task = await bench.submit()
        await bench.engine.cancel(task.id)
        assert (await bench.engine.replay(task.id)).state is State.QUEUED

    async def test_a_foreign_task_is_not_restored_from_quarantine(self) -> None:
        bench = Bench(batching=False)
        foreign = await bench.submit(tenant="umbrella")
        parts = {"spec": msgspec.msgpack.encode(foreign.spec), "status": msgspec.msgpack.encode(foreign.status)}
        await bench.engine.cancel(foreign.id)
        await bench.engine.discard(foreign.id)
        await bind(bench)
        kept = Quarantined(kind=TASK, name=foreign.id, parts=parts, error="it was damaged", found_at=0)
        await bench.store.put(QUARANTINE, kept.key, msgspec.msgpack.encode(kept))
        with pytest.raises(RestoreRefused, match="does not belong to the tenant"):
            await bench.engine.quarantine.restore(kept.key)
        assert await bench.engine.find() == []


class TestClaiming:
    async def test_a_claim_for_a_tenant_looks_at_its_queues_only(self, bench: Bench) -> None:
        await bench.submit(tenant="acme")
        assert await bench.claim(tenant="acme") == []
        await bind(bench)
        assert await bench.claim(tenant="umbrella") == []
        assert len(await bench.claim(tenant="acme")) == 1

    async def test_a_foreign_task_waits_on_as_if_it_had_never_been_taken(self, bench: Bench, late: Bench) -> None:
        foreign = await foreign_task(bench, late)
        bench.clock.advance(1_000_000)
        own = await bench.submit()
        bench.occurrences.clear()
        (taken,) = await bench.claim(tenant="acme")
        assert taken.id == own.id
        assert bench.told() == [Happening.FOREIGN, Happening.STARTED]
        after = await bench.engine.get(foreign.id)
        assert after.spec == foreign.spec
        assert after.status.version > foreign.status.version
        assert msgspec.structs.replace(after.status, version=foreign.status.version) == foreign.status
        (task,) = await late.claim()
        assert (task.id, task.status.attempts) == (foreign.id, 1)
        assert (await late.settle(task, Completed())).state is State.COMPLETED

    async def test_what_it_had_spent_before_is_what_it_has_spent(self, bench: Bench, late: Bench) -> None:
        await late.submit(queue="elsewhere")
        foreign = await late.executing(tenant="umbrella")
        await late.settle(foreign, Failed(failure=BOOM, after=0))
        # As if its process had learned of the binding late: a queue with a foreign task cannot be bound otherwise.
        await bench.store.put("queue", "default", msgspec.msgpack.encode(QueueSettings(tenant="acme")))
        bench.engine.queue_cache.expire()
        before = await bench.engine.get(foreign.id)
        assert await bench.claim(tenant="acme") == []
        after = await bench.engine.get(foreign.id)
        assert msgspec.structs.replace(after.status, version=before.status.version) == before.status

    async def test_very_many_foreign_tasks_do_not_keep_it_from_the_own(self, bench: Bench, late: Bench) -> None:
        await foreign_task(bench, late)
        await late.engine.submit_many([a_wish(tenant="umbrella")] * 30)
        bench.clock.advance(1_000_000)
        own = await bench.submit()
        assert [task.id for task in await bench.claim(tenant="acme")] == [own.id]
        assert len(await late.claim(100)) == 31


class TestWorkers:
    async def test_a_worker_id_belongs_to_the_key_that_registered_it(self, bench: Bench) -> None:
        worker, worker_records = WorkerId("w"), bench.engine.worker_records
        await worker_records.register(worker, queues=["default"], capacity=1, key="k1", tenant="acme")
        await worker_records.register(worker, queues=["default"], capacity=2, key="k1", tenant="acme")
        for key in ("k2", None):
            with pytest.raises(Forbidden, match="the worker id 'w' belongs to another key"):
                await worker_records.register(worker, queues=["default"], capacity=3, key=key)
        (present,) = await worker_records.workers()
        assert (present.key, present.tenant, present.capacity) == ("k1", "acme", 2)
        await worker_records.beat(worker, running=1)
        assert (await worker_records.workers())[0].key == "k1"
        await worker_records.leave(worker)
        await worker_records.register(worker, queues=["default"], capacity=3, key="k2")
