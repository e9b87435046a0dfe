"""Submitting: calls become tasks, with their options, or are refused before anything is stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec import Raw, Struct

from fairlead import Backoff, Fairlead, InvalidSettings, InvalidTask, Priority, QueueFull, Settings, State
from fairlead.app.task_type import Call
from fairlead.core.instant import SECOND
from fairlead.core.task import Task
from fairlead.storage.values import Filter


@pytest.fixture
def app() -> Fairlead:
    return Fairlead("memory://")


async def stored(app: Fairlead) -> list[Task]:
    return await (await app.connection().engine()).find(Filter())


async def test_a_call_becomes_a_task_with_the_options_of_its_type(app: Fairlead) -> None:
    @app.task(
        priority="high", timeout=30, max_retries=7, max_crashes=1, requires={"gpu", "eu"}, queue="video",
        tags=["a"], tenant="acme", trace="00-abc", backoff=Backoff(initial=5),
    )  # fmt: skip
    async def render(video: str, width: int = 1920) -> str:
        return video

    handle = await render.submit("a.mp4", width=1280)

    (task,) = await stored(app)
    assert (task.id, handle.status, handle.existing) == (handle.id, State.QUEUED, False)
    assert task.spec.parameters == b'{"video":"a.mp4","width":1280}'
    assert (task.spec.type, task.spec.queue, task.status.priority) == ("render", "video", Priority.HIGH)
    assert (task.spec.requires, task.spec.tags, task.spec.tenant) == (("eu", "gpu"), ("a",), "acme")
    assert (task.spec.timeout, task.spec.max_retries, task.spec.max_crashes) == (30 * SECOND, 7, 1)
    assert (task.spec.trace, task.spec.backoff) == ("00-abc", Backoff(initial=5.0))


async def test_what_is_not_said_is_what_the_priority_gives(app: Fairlead) -> None:
    @app.task
    async def low() -> None: ...

    handle = await low.options(priority="low").submit()
    assert (handle.snapshot.spec.max_retries, handle.snapshot.spec.timeout) == (2, 900 * SECOND)


async def test_options_change_a_copy_and_leave_the_type_as_it_is(app: Fairlead) -> None:
    @app.task(priority="high", tags=["a"])
    async def work(number: int) -> int:
        return number

    other = work.options(priority="low").options(queue="slow")
    changed, plain = await other.submit(1), await work.submit(2)
    assert (changed.snapshot.status.priority, changed.snapshot.spec.queue) == (Priority.LOW, "slow")
    assert changed.snapshot.spec.tags == ("a",)
    assert (plain.snapshot.status.priority, plain.snapshot.spec.queue) == (Priority.HIGH, "default")


async def test_a_delay_and_a_moment_schedule_and_the_later_word_counts(app: Fairlead) -> None:
    @app.task(delay=3_600)
    async def work() -> None: ...

    moment = datetime.now(timezone(timedelta(hours=5))) + timedelta(days=1)
    delayed = await work.submit()
    timed = await work.options(run_at=moment).submit()
    now = await work.options(delay=0).submit()
    past = await work.options(run_at=datetime(2020, 1, 1, tzinfo=UTC)).submit()
    assert [each.status for each in (delayed, timed, now, past)] == [State.SCHEDULED] * 2 + [State.QUEUED] * 2
    assert delayed.snapshot.status.ready_at - delayed.snapshot.spec.created_at == 3_600 * SECOND
    assert timed.snapshot.status.ready_at == round(moment.timestamp() * SECOND)


async def test_an_idempotency_key_names_one_task(app: Fairlead) -> None:
    @app.task
    async def work(number: int) -> None: ...

    once = work.options(idempotency_key="x")
    first, second = await once.submit(1), await once.submit(2)
    assert (first.existing, second.existing, second.id) == (False, True, first.id)
    assert second.snapshot.spec.parameters == b'{"number":1}'
    assert len(await stored(app)) == 1


async def test_many_are_stored_in_their_order(app: Fairlead) -> None:
    @app.task
    async def work(number: int) -> None: ...

    handles = await work.submit_many(work.call(number) for number in range(100))
    assert [handle.snapshot.spec.parameters for handle in handles] == [b'{"number":%d}' % n for n in range(100)]
    urgent = work.options(priority="critical")
    mixed = await work.submit_many([work.call(1), urgent.call(2)])
    assert [handle.snapshot.status.priority for handle in mixed] == [Priority.MEDIUM, Priority.CRITICAL]
    assert await work.submit_many([]) == []


async def test_of_many_the_first_refusal_is_raised_when_the_others_are_stored() -> None:
    app = Fairlead("memory://", settings=Settings(queue_bound=2))

    @app.task
    async def work(number: int) -> None: ...

    with pytest.raises(QueueFull):
        await work.submit_many([work.call(number) for number in range(4)])
    assert len(await stored(app)) == 2


async def test_concurrent_submits_are_all_stored(app: Fairlead) -> None:
    @app.task
    async def work(number: int) -> None: ...

    handles = await asyncio.gather(*(work.submit(number) for number in range(200)))
    assert len({handle.id for handle in handles}) == 200


async def test_a_call_that_does_not_fit_is_refused_with_the_path_and_nothing_is_stored(app: Fairlead) -> None:
    @app.task
    async def render(video: str, sizes: list[int] | None = None) -> None: ...

    submit: object = render.submit
    assert callable(submit)
    for args, kwargs, complaint in (
        ((1,), {}, r"Expected `str`, got `int` - at `\$.video`"),
        (("a", [1, "2"]), {}, r"Expected `int`, got `str` - at `\$.sizes\[1\]`"),
        ((), {}, "missing a required argument: 'video'"),
        (("a", [], 3), {}, "too many positional arguments"),
        (("a",), {"size": 1}, "got an unexpected keyword argument 'size'"),
        ((object(),), {}, "Encoding objects of type object is unsupported"),
        (({(1, 2): 3},), {}, "Only dicts with str-like or number-like keys are supported"),
        (("\ud800",), {}, "surrogates"),
        ((float("nan"),), {}, r"nan is not a number that JSON has - at `\$.video`"),
    ):
        with pytest.raises(InvalidTask, match=rf"render\(\) cannot be called like this: .*{complaint}") as refusal:
            await submit(*args, **kwargs)
        assert refusal.value.field == "parameters"
    assert await stored(app) == []


class Reading(Struct):
    mean: float


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((float("nan"),), {}, r"nan is not a number that JSON has - at `\$.value`"),
        (({"mean": [None, float("-inf")]},), {}, r"-inf is not a number that JSON has - at `\$.value.mean\[1\]`"),
        ((Reading(float("inf")),), {}, r"inf is not a number that JSON has - at `\$.value.mean`"),
        (([Raw(b"null"), float("nan")],), {}, r"nan is not a number that JSON has - at `\$.value\[1\]`"),
        ((None,), {"other": float("nan")}, r"nan is not a number that JSON has - at `\$.other`"),
        ((Raw(b"NaN"),), {}, "JSON is malformed"),
        ((1,), {"raw": Raw(b'{"a": nope')}, "JSON is malformed"),
        ((1,), {"raw": Raw(b'"\xff"')}, "'utf-8' codec can't decode"),
    ],
)
async def test_what_json_has_no_form_for_is_refused_with_its_path_by_every_entrance(
    app: Fairlead, args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    @app.task
    async def measure(value: Any, raw: Raw = Raw(b"1"), **further: Any) -> None: ...  # noqa: B008

    for entrance in (measure.call, measure.submit_sync):
        with pytest.raises(InvalidTask, match=rf"measure\(\) cannot be called like this: .*{complaint}"):
            entrance(*args, **kwargs)
    assert await stored(app) == []


async def test_what_is_raw_and_json_is_a_parameter_as_it_stands(app: Fairlead) -> None:
    @app.task
    async def measure(value: Any, raw: Raw) -> None: ...

    await measure.submit([None, Raw(b'{"a": 1}')], Raw(b"[ 1]"))
    (task,) = await stored(app)
    assert task.spec.parameters == b'{"value":[null,{"a": 1}],"raw":[ 1]}'


@pytest.mark.parametrize(
    ("options", "field", "complaint"),
    [
        ({"priority": "urgent"}, "priority", "priority 'urgent' is unknown; use one of critical, high, medium, low"),
        (
            {"prioritty": "high"},
            "prioritty",
            "option 'prioritty' is unknown; the options are after, backoff, concurrency_key, delay, ",
        ),
        ({"requires": "gpu"}, "requires", "requires 'gpu' is one word; write a list of names"),
        ({"tags": "a"}, "tags", "tags 'a' is one word; write a list of names"),
        ({"requires": {"gpu": 1}}, "requires", "requires {'gpu': 1} is not a list; write a list of names, such as"),
        ({"requires": 5}, "requires", "requires 5 is not a list; write a list of names, such as"),
        ({"after": object}, "after", "is not a list; write a list of handles, or of ids as submit returned them"),
        ({"after": [5]}, "after", "after names 5, which is a position; only a batch over HTTP has"),
        ({"after": [None]}, "after", "after names None; write a list of handles, or of ids"),
        ({"run_at": datetime(2030, 1, 1)}, "run_at", "has no time zone"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(
    app: Fairlead, options: dict[str, object], field: str, complaint: str
) -> None:
    @app.task
    async def work() -> None: ...

    change: object = work.options
    define: object = app.task
    assert callable(change)
    assert callable(define)
    with pytest.raises(InvalidTask) as changed:
        change(**options)
    with pytest.raises(InvalidTask) as defined:
        define(name="other", **options)(work.__wrapped__)
    for refusal in (changed.value, defined.value):
        assert refusal.field == field
        assert complaint in str(refusal)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"delay": -1}, "delay"),
        ({"timeout": 0}, "timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"queue": "no spaces"}, "queue"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"run_at": datetime.now(UTC), "delay": 1}, "delay"),
    ],
)
async def test_options_out_of_range_are_refused_before_storing(
    app: Fairlead, options: dict[str, object], field: str
) -> None:
    @app.task
    async def work() -> None: ...

    change: object = work.options
    assert callable(change)
    with pytest.raises(InvalidTask) as refusal:
        await change(**options).submit()
    assert refusal.value.field == field
    assert await stored(app) == []


async def test_a_task_is_still_a_function(app: Fairlead) -> None:
    @app.task
    async def on_loop(number: int) -> int:
        """Doubles."""
        return 2 * number

    @app.task(name="other.name")
    def in_thread(number: int) -> int:
        return 3 * number

    assert (await on_loop(1), in_thread(1)) == (2, 3)
    assert (on_loop.__name__, on_loop.__doc__, repr(in_thread)) == ("on_loop", "Doubles.", "<task type other.name>")
    assert isinstance(on_loop.call(1), Call)
    assert await stored(app) == []


def test_two_handlers_cannot_have_one_type(app: Fairlead) -> None:
    def work() -> None: ...

    app.task(work)
    with pytest.raises(InvalidSettings, match="task type 'work' has a handler already"):
        app.task(work)


async def test_a_worker_needs_something_to_do(app: Fairlead) -> None:
    with pytest.raises(InvalidSettings, match="the app has no task types"):
        await app.worker()


async def test_a_concurrency_key_is_a_text_or_made_of_the_arguments(app: Fairlead) -> None:
    @app.task(concurrency_key=lambda account, **_: f"account {account}")
    async def sync(account: int, full: bool = False) -> None: ...

    keys = [
        (await sync.submit(7)).snapshot.spec.concurrency_key,
        (await sync.submit(account=8, full=True)).snapshot.spec.concurrency_key,
        (await sync.options(concurrency_key="all").submit(9)).snapshot.spec.concurrency_key,
    ]
    assert keys == ["account 7", "account 8", "all"]
    with pytest.raises(InvalidTask, match="not a text"):
        await sync.options(concurrency_key=lambda account: account).submit(1)
    with pytest.raises(InvalidTask, match="concurrency_key has 501 characters"):
        await sync.options(concurrency_key="k" * 501).submit(1)


async def test_limits_are_set_from_code(app: Fairlead) -> None:
    await app.queues.change("mail", running=2, rate="10/s", type_rate={"send": "1/m"}, key_running=3, key_rate="5/h")
    own = await app.queues.get("mail")
    assert (own.running, str(own.rate), own.key_running, str(own.key_rate)) == (2, "10/s", 3, "5/h")
    assert {name: str(rate) for name, rate in own.type_rate.items()} == {"send": "1/m"}


async def test_a_queue_is_bound_to_a_tenant_from_code(app: Fairlead) -> None:
    @app.task(queue="mail")
    async def send() -> None: ...

    @app.task(queue="mail", tenant="umbrella")
    async def spam() -> None: ...

    assert (await app.queues.change("mail", tenant="acme")).tenant == "acme"
    await send.submit()
    assert [task.spec.tenant for task in await stored(app)] == ["acme"]
    with pytest.raises(InvalidTask, match="which is bound to another tenant"):
        await spam.submit()
    with pytest.raises(InvalidSettings, match="while it holds tasks of tenant 'acme'"):
        await app.queues.change("mail", tenant="umbrella")
    assert (await app.queues.reset("mail")).tenant == "acme"


async def test_a_call_of_another_task_is_refused_before_anything_is_stored(app: Fairlead) -> None:
    @app.task
    async def one() -> None: ...

    @app.task
    async def other() -> None: ...

    with pytest.raises(InvalidTask, match=r"a call of other is among those of one"):
        await one.submit_many([one.call(), other.call()])
    assert not (await app.tasks.search()).tasks


async def test_a_submit_for_synchronous_code_within_a_loop_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    app = Fairlead("memory://")

    @app.task
    async def held_up() -> None: ...

    await asyncio.to_thread(held_up.submit_sync)
    assert "submit_sync" not in caplog.text, "there is no loop in a thread"
    held_up.submit_sync()
    assert "held_up" in caplog.text
    held_up.submit_many_sync([held_up.call()])
    app.submit_sync("by_name_only")
    assert caplog.text.count("a task of type held_up is submitted by submit_sync within a running event loop") == 1
    assert caplog.text.count("a task of type by_name_only is submitted by submit_sync") == 1
