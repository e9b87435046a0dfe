"""Task types as workers publish them: submits by name, over HTTP and from the command line get their options."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fairlead import Backoff, Fairlead, InvalidTask, Priority
from fairlead.admin.keys.service import Keyring
from fairlead.admin.types import service
from fairlead.core.errors import StoreRefused, TypeNotFound
from fairlead.core.instant import SECOND
from fairlead.core.retry import RetryRule
from fairlead.core.submission import MOST_SCHEMA, Declaration, Submission
from fairlead.core.task import Task
from fairlead.core.tenancy import Role
from fairlead.storage.open import open_store
from tests.client.serving import Port
from tests.servers.stores import Place


def declaring(app: Fairlead) -> Any:
    @app.task(
        priority="high", queue="billing", timeout=30, max_retries=7, tags=["money"], requires=["eu"], expires=60,
        backoff=Backoff(initial=5), retry_rules={"OSError": RetryRule(max_retries=1)}, retention={"failed": 9},
    )  # fmt: skip
    async def bill(order_id: int, cents: int = 100) -> None: ...

    return bill


async def publish(app: Fairlead) -> None:
    await (await app.worker(queues=["billing"], capabilities=["eu"], keeper_process=False)).close()


def as_declared(task: Task) -> None:
    spec = task.spec
    assert (spec.queue, task.status.priority, spec.timeout, spec.max_retries) == (
        "billing", Priority.HIGH, 30 * SECOND, 7,
    )  # fmt: skip
    assert (spec.tags, spec.requires, spec.expires) == (("money",), ("eu",), 60 * SECOND)
    assert spec.retention is not None
    assert spec.retention.failed == 9 * SECOND
    assert isinstance(spec.backoff, dict)
    assert spec.backoff["OSError"].max_retries == 1


@pytest.fixture
async def producer(place: Place) -> AsyncIterator[Fairlead]:
    if place.url == "memory://":
        pytest.skip("what is in memory is seen by one app")
    app = Fairlead(place.url, journal=place.journal)
    yield app
    await app.close()


async def test_a_submit_by_name_gets_what_the_declaration_says(any_app: Fairlead, producer: Fairlead) -> None:
    bill = declaring(any_app)
    await publish(any_app)

    by_name = await producer.submit("bill", {"order_id": 17})

    as_declared(by_name.snapshot)
    assert by_name.snapshot.spec.backoff == (await bill.submit(17)).snapshot.spec.backoff
    other = await producer.submit("bill", {"order_id": 17}, priority="low", queue="default", delay=5)
    assert (other.snapshot.spec.queue, other.snapshot.status.priority) == ("default", Priority.LOW)
    assert other.snapshot.spec.max_retries == 7, "what it does not say is still as declared"
    unknown = await producer.submit("ship")
    assert unknown.snapshot.spec.queue == "default"


async def test_types_are_listed_and_shown_with_their_parameters(any_app: Fairlead) -> None:
    declaring(any_app)

    @any_app.task(concurrency_key=lambda order_id: str(order_id))
    async def ship(order_id: int) -> None: ...

    await publish(any_app)

    listed = await any_app.types.all()
    assert [(each.submission.type, each.computed, each.schema) for each in listed] == [
        ("bill", (), b""), ("ship", ("concurrency_key",), b""),
    ]  # fmt: skip
    shown = any_app.types.get_sync("bill")
    assert json.loads(shown.schema)["$defs"]["Arguments"]["properties"]["order_id"] == {"type": "integer"}
    assert (shown.submission.timeout, shown.tenant) == (30 * SECOND, None)
    assert shown.worker
    with pytest.raises(TypeNotFound, match="task type 'mend' is not published"):
        await any_app.types.get("mend")
    await any_app.types.remove("bill")
    assert [each.submission.type for each in await any_app.types.all()] == ["ship"]
    with pytest.raises(TypeNotFound):
        await any_app.types.remove("bill")


async def test_the_newest_word_counts_and_a_worker_that_starts_again_writes_nothing(any_app: Fairlead) -> None:
    declaring(any_app)
    await publish(any_app)
    engine: Any = await any_app.connection().engine()
    first = await engine.store.scan("declaration")
    await publish(any_app)
    assert await engine.store.scan("declaration") == first
    await engine.types.declare([Declaration(submission=Submission(type="bill", queue="new"), worker="another")])
    assert [each.submission.queue for each in await engine.types.all()] == ["new"]
    assert (await any_app.types.get("bill")).schema == b"", "nor is another's schema shown for it"


async def test_over_http_a_body_is_filled_in_and_a_worker_needs_the_role_work_only() -> None:
    port = Port(await open_store("memory://"))
    await port.open()
    try:
        ring = Keyring(port.engine)
        worker = port.app((await ring.create("w", [Role.WORK])).text)
        declaring(worker)
        await publish(worker)
        submitter = port.app((await ring.create("s", [Role.SUBMIT, Role.READ])).text)

        as_declared(await port.engine.get((await submitter.submit("bill", {"order_id": 1})).id))
        key = (await ring.create("h", [Role.SUBMIT])).text
        async with httpx.AsyncClient(base_url=port.url, headers={"authorization": f"Bearer {key}"}) as client:
            said = {"task_type": "bill", "parameters": {"order_id": 1}}
            one = (await client.post("/api/v1/tasks", json=said)).json()
            as_declared(await port.engine.get(one["task_id"]))
            batch = (await client.post("/api/v1/tasks/batch", json=[said, {**said, "queue": "default"}])).json()
            as_declared(await port.engine.get(batch["results"][0]["task"]["task_id"]))
            assert batch["results"][1]["task"]["queue"] == "default"
        (listed,) = await submitter.types.all()
        assert listed.submission == (await port.engine.types.all())[0].submission
        assert (await submitter.types.get("bill")).schema
        with pytest.raises(TypeNotFound):
            await submitter.types.get("mend")
        with pytest.raises(StoreRefused, match="admin"):
            await submitter.types.remove("bill")
    finally:
        await port.end()


async def test_what_a_tenant_publishes_counts_for_that_tenant_only() -> None:
    """Or one tenant's worker could lead the tasks of another into its own queue."""
    port = Port(await open_store("memory://"))
    await port.open()
    try:
        ring = Keyring(port.engine)
        apps: dict[str, Fairlead] = {}
        await port.engine.types.declare([Declaration(submission=Submission(type="bill", max_retries=1))])
        for tenant, retries in (("acme", 5), ("evil", 9)):
            key = (await ring.create(tenant, [Role.WORK, Role.READ, Role.ADMIN], tenant=tenant)).text
            app = apps[tenant] = port.app(key)
            engine: Any = await app.connection().engine()
            await engine.types.declare([Declaration(submission=Submission(type="bill", max_retries=retries))])
            assert [(each.tenant, each.submission.max_retries) for each in await app.types.all()] == [(tenant, retries)]
        for whose, retries in (("acme", 5), ("evil", 9), (None, 1), ("third", 1)):
            submission = Submission(type="bill", tenant=whose, by_name=True, queue="")
            assert (await port.engine.submit(submission)).task.spec.max_retries == retries
        evil = apps["evil"].types
        await evil.remove("bill")
        assert [each.tenant for each in await port.engine.types.all()] == [None, "acme"]
        for look in (evil.remove, evil.get):
            with pytest.raises(TypeNotFound):
                await look("bill")
    finally:
        await port.end()


@pytest.mark.parametrize(
    "wrong",
    [
        Declaration(submission=Submission(type="a b")),
        Declaration(submission=Submission(type="a", queue="")),
        Declaration(submission=Submission(type="a", run_at=5)),
        Declaration(submission=Submission(type="a"), schema=b"x" * (MOST_SCHEMA + 1)),
        Declaration(submission=Submission(type="a"), worker="x" * 201),
        Declaration(submission=Submission(type="a"), computed=("a b",)),
    ],
)
async def test_what_cannot_be_kept_is_refused(any_app: Fairlead, wrong: Declaration) -> None:
    engine: Any = await any_app.connection().engine()
    with pytest.raises(InvalidTask):
        await engine.types.declare([wrong])
    assert await engine.types.all() == []


async def test_no_more_types_are_published_than_all_can_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "MOST_TYPES", 1)
    app = Fairlead("memory://")
    declaring(app)

    @app.task
    async def ship() -> None: ...

    await publish(app)
    assert await app.types.all() == []
    assert "are not published: 1 types may be published at most" in caplog.text


async def test_a_server_of_an_earlier_version_does_not_end_its_workers(caplog: pytest.LogCaptureFixture) -> None:
    port = Port(await open_store("memory://"))
    await port.open()
    try:
        app = port.app()
        declaring(app)
        engine: Any = await app.connection().engine()
        asked = engine.types._ask

        async def older(endpoint: Any, *args: Any, **more: Any) -> Any:
            return await asked(endpoint.__class__(**{**vars(endpoint), "path": "/api/v1/nowhere"}), *args, **more)

        engine.types._ask = older
        await publish(app)
        assert "the task types of this worker are not published" in caplog.text
    finally:
        await port.end()
