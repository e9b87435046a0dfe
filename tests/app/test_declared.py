"""What cannot be right is refused where it is declared, by an error that says what to write instead."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import fairlead
from fairlead import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Fairlead,
    FairleadError,
    InvalidSettings,
    InvalidTask,
    PayloadTooLarge,
    Retry,
)
from fairlead.core import circuit, retry, settings
from fairlead.core.instant import SECOND as MICROSECONDS
from fairlead.core.instant import span
from fairlead.core.queues import order


def work() -> None: ...


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", 0),
        ("max_retries", -1),
        ("queue", "a b"),
        ("reject_on", "ValueError"),
        ("reject_on", ValueError),
        ("reject_on", ["ValueError"]),
        ("reject_on", [ValueError("x")]),
        ("retry_on", 5),
        ("retry_on", None),
        ("retry_on", {ValueError: fairlead.RetryRule(max_retries=2)}),
        ("reject_on", {ValueError: 1}),
        ("retry_on", [int]),
        ("isolate", "yes"),
        ("memory_limit", 5),
        ("name", 5),
        ("name", ""),
        ("name", "a b"),
        ("circuit", 5),
        ("circuit", {"probes": 1}),
        ("prioritty", "high"),
        ("concurrency_key", 5),
        ("backoff", 5),
        ("backoff", retry.RetryRule()),
    ],
)
def test_a_task_type_that_makes_no_sense_is_refused_and_leaves_no_trace(option: str, value: Any) -> None:
    app = Fairlead("memory://")
    with pytest.raises(FairleadError) as refused:
        app.task(**{option: value})(work)
    assert (option if option != "name" else "type") in str(refused.value) and ";" in str(refused.value)
    assert not app.handlers.types and not app.circuits.declared


@pytest.mark.parametrize("memory_limit", [0, -1, True, 2.5, "1G"])
def test_a_memory_limit_is_a_number_of_bytes(memory_limit: Any) -> None:
    with pytest.raises(InvalidSettings, match=r"memory_limit .*; use"):
        Fairlead("memory://").task(isolate=True, memory_limit=memory_limit)(work)


@pytest.mark.parametrize("function", ["high", 5, functools.partial(work), None])
def test_what_is_no_function_is_no_task_type(function: Any) -> None:
    with pytest.raises(InvalidSettings, match="is not a function"):
        Fairlead("memory://").task()(function)
    with pytest.raises(InvalidSettings, match="several functions"):
        Fairlead("memory://").task(work, function)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "store",
    [
        5,
        b"memory://",
        "",
        "tasks.db",
        "mysql://localhost",
        "sqlite://tasks.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///tasks.db?sync=off",
        "sqlite:///tasks.db?synchronous=maybe",
        "redis://localhost:port",
        "redis://localhost:99999",
        "redis://localhost/tasks",
        "redis://localhost?prefiks=a",
        "redis://localhost?timeout=soon",
        "redis+sentinel://localhost",
        "redis+cluster://localhost/1",
        "redis://[::1",
        "postgresql://localhost:port/tasks",
        "postgresql://localhost:99999/tasks",
        "postgresql://localhost/tasks?schema=A B",
        "postgresql://localhost/tasks?pool=0",
        "postgresql://localhost/tasks?sslmoed=require",
        "postgresql://[::1/tasks",
        "https://",
        "https://host:port",
        "https://user:secret@host",
        "https://[::1",
    ],
)
def test_a_store_that_can_be_nowhere_is_refused_when_the_app_is_made(store: Any) -> None:
    with pytest.raises(InvalidSettings) as refused:
        Fairlead(store, settings=settings.Settings(), api_key="k")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"journal": 5},
        {"journal": "redis://localhost"},
        {"journal": "http://["},
        {"journal": "postgresql://localhost/tasks?required=maybe"},
        {"settings": 5},
        {"settings": {"lease": 30}},
        {"observers": 5},
        {"observers": "metrics"},
        {"observers": [5]},
        {"api_key": 5},
    ],
    ids=str,
)
def test_an_app_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"store": "redis://localhost", "settings": settings.Settings()}
    with pytest.raises(InvalidSettings, match=next(iter(given))):
        Fairlead(**(usual | given))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timezone", 5),
        ("missed", "never"),
        ("missed", 5),
        ("missed_cap", True),
        ("missed_cap", 2.5),
        ("overlap", True),
        ("jitter", "5"),
        ("jitter", float("nan")),
        ("jitter", -1),
        ("start", "tomorrow"),
        ("end", 5),
        ("parameters", []),
        ("parameters", 5),
        ("parameters", {5: 1}),
        ("parameters", {None: 1}),
        ("name", 5),
        ("name", 0),
        ("name", ""),
        ("name", False),
        ("name", b""),
        ("jiter", 5),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_where_it_is_declared(option: str, value: Any) -> None:
    app = Fairlead("memory://")
    with pytest.raises(InvalidTask, match=option):
        app.cron("@daily", **{option: value})(app.task(work))
    for cron in (5, None, "", ["@daily"]):
        with pytest.raises(InvalidTask, match="cron"):
            Fairlead("memory://").cron(cron)(work)  # type: ignore[arg-type]
    assert not app.schedules.declared


def test_a_schedule_whose_task_no_worker_could_store_is_refused_where_it_is_declared() -> None:
    app = Fairlead("memory://", settings=settings.Settings(payload_limit=100))

    def report(kind: str) -> None: ...

    with pytest.raises(PayloadTooLarge, match=r"over the limit of 100; store the data elsewhere"):
        app.cron("@daily", parameters={"kind": "x" * 100})(app.task(report))
    assert not app.schedules.declared


async def test_a_worker_starts_though_a_schedule_that_its_app_declares_is_over() -> None:
    app = Fairlead("memory://")

    @app.cron("@daily", end=datetime(2020, 1, 1, tzinfo=UTC))
    @app.task
    def campaign() -> None: ...

    app.cron("@daily")(app.task(work))
    await app.worker(keeper_process=False)
    assert [entry.name for entry in await app.schedules.all()] == ["work"]

    with app.testing() as rehearsal:
        assert await rehearsal.travel(DAY) == 1


@pytest.mark.parametrize(
    "call", [None, 5, work, "work", object()], ids=["nothing", "number", "task type", "name", "object"]
)
async def test_a_schedule_submits_a_call(call: Any) -> None:
    app = Fairlead("memory://")
    with pytest.raises(InvalidTask, match=r"call .* is not a call; make one with task\.call"):
        app.schedules.add_sync("nightly", "@daily", call)


class Signatureless:
    """What Python finds no signature of."""

    __name__ = "signatureless"
    __signature__ = 5

    def __call__(self) -> None: ...


@pytest.mark.parametrize("function", [int, ValueError, Signatureless()], ids=["int", "ValueError", "object"])
def test_what_has_no_signature_is_no_task_type(function: Any) -> None:
    with pytest.raises(InvalidSettings, match="has no signature that Python knows; write a def"):
        Fairlead("memory://").task(name="work")(function)


@pytest.mark.parametrize(
    "annotation", ["a b", "1 / 0", "datetime.nothing", "list[int] | tuple[int]", "list[", "nowhere()"]
)
async def test_an_annotation_that_means_nothing_is_an_error_of_ours(annotation: str) -> None:
    app = Fairlead("memory://")

    def odd(value: int) -> None: ...

    odd.__annotations__["value"] = annotation
    task = app.task(odd)
    with pytest.raises(InvalidSettings, match=r"task .*odd: .*; (annotat|use)"):
        await app.worker()
    with pytest.raises(InvalidTask, match=r"task .*odd: .*; (annotat|use)"):
        task.call(5)


@pytest.mark.parametrize(
    "changes",
    [
        {"timeout": 0},
        {"timeout": "5"},
        {"priority": True},
        {"max_retries": True},
        {"max_crashes": 2.5},
        {"bound": "5"},
        {"backoff": 5},
        {"order": "strict"},
        {"running": True},
        {"rate": 5},
        {"rate": "fast"},
        {"type_running": 5},
        {"type_running": {"a": True}},
        {"type_rate": 5},
        {"key_running": False},
        {"bnd": 5},
    ],
    ids=str,
)
def test_a_queue_is_changed_by_the_same_rules(changes: dict[str, Any]) -> None:
    app = Fairlead("memory://")
    with pytest.raises(FairleadError, match=next(iter(changes))):
        app.queues.change_sync("default", **changes)
    assert app.queues.all_sync() == {}


def test_what_is_said_of_queues_and_circuits_is_in_seconds_too() -> None:
    app = Fairlead("memory://")
    assert app.queues.change_sync("default", timeout=0.5 * SECOND).timeout == span(0.5)
    with pytest.raises(InvalidSettings, match="CircuitSettings"):
        app.circuits.set_sync("work", 5)  # type: ignore[arg-type]


class TestSeconds:
    def test_a_number_is_seconds_as_it_is_for_a_timeout(self) -> None:
        assert fairlead.Backoff(initial=5, ceiling=0.5) == retry.Backoff(initial=span(5), ceiling=span(0.5))
        assert fairlead.CircuitSettings(open_for=60) == circuit.CircuitSettings(open_for=span(60))
        assert fairlead.Promote(low=1, medium=2, high=3) == order.Promote(low=span(1), medium=span(2), high=span(3))
        assert fairlead.Settings(lease=30, sweep_interval=0.25).sweep_interval == span(0.25)

    def test_a_timedelta_is_what_it_says(self) -> None:
        assert fairlead.Backoff(initial=timedelta(milliseconds=1)) == retry.Backoff(initial=1_000)
        assert fairlead.Backoff(initial=30 * SECOND) == retry.Backoff(initial=30 * MICROSECONDS)
        assert fairlead.Backoff(initial=0.5 * SECOND) == fairlead.Backoff(initial=0.5)
        assert (MINUTE, HOUR, DAY) == (60 * SECOND, 60 * MINUTE, 24 * HOUR)

    def test_what_is_made_is_the_value_of_the_core_and_its_defaults_are_the_same(self) -> None:
        for made, kept in (
            (fairlead.Backoff(), retry.Backoff()),
            (fairlead.RetryRule(), retry.RetryRule()),
            (fairlead.CircuitSettings(), circuit.CircuitSettings()),
            (fairlead.Promote(), order.Promote()),
            (fairlead.HeadStart(), order.HeadStart()),
            (fairlead.Settings(), settings.Settings()),
            (fairlead.Defaults(), settings.Defaults()),
            (fairlead.Rules(), settings.Rules()),
            (fairlead.Retention(), settings.Retention()),
            (fairlead.DelayCeilings(), settings.DelayCeilings()),
        ):
            assert type(made) is type(kept) and made == kept
            assert isinstance(kept, getattr(fairlead, type(kept).__name__))
            assert msgspec.msgpack.encode(made) == msgspec.msgpack.encode(kept)
        assert not isinstance(5, fairlead.Backoff)

    def test_a_span_that_may_be_none_is_in_seconds_all_the_same(self) -> None:
        assert fairlead.DelayCeilings(critical=2.5, high=MINUTE, low=None) == settings.DelayCeilings(
            critical=span(2.5), high=span(60)
        )
        with pytest.raises(InvalidSettings, match=r"DelayCeilings critical '10'.*; use"):
            fairlead.DelayCeilings(critical="10")  # type: ignore[arg-type]
        with pytest.raises(InvalidSettings, match=r"DelayCeilings critical 10,000,000 .* SECOND from fairlead"):
            fairlead.DelayCeilings(critical=10 * MICROSECONDS)

    def test_the_preset_is_in_the_units_of_the_core(self) -> None:
        ceilings = fairlead.Rules(delay_ceilings=fairlead.CEILINGS_BY_PRIORITY).delay_ceilings

        assert ceilings == fairlead.DelayCeilings(critical=10, high=30, medium=60)

    @pytest.mark.parametrize("wrong", ["5", True, float("nan"), float("inf"), None, -1, 2**70, [5], timedelta(-1)])
    def test_what_is_no_span_is_refused_by_name(self, wrong: Any) -> None:
        with pytest.raises(InvalidSettings, match=r"(?i)backoff initial.*; use"):
            fairlead.Backoff(initial=wrong)

    def test_microseconds_of_the_core_are_not_taken_for_seconds(self) -> None:
        with pytest.raises(InvalidSettings, match=r"Backoff initial 30,000,000 .* 347 days; .* SECOND from fairlead"):
            fairlead.Backoff(initial=30 * MICROSECONDS)
        assert fairlead.Retention(failed=timedelta(seconds=2_000_000)).failed == span(2_000_000)

    def test_a_setting_is_said_by_its_name(self) -> None:
        with pytest.raises(InvalidSettings, match=r"by name; write Backoff\(initial=…\)"):
            fairlead.Backoff(5)  # type: ignore[call-arg]
        with pytest.raises(InvalidSettings, match="no setting 'intial'; they are initial, factor"):
            fairlead.Backoff(intial=5)  # type: ignore[call-arg]
        with pytest.raises(InvalidSettings, match="leaves max_retries out"):
            fairlead.PriorityDefaults(timeout=5)  # type: ignore[call-arg]

    def test_no_class_derives_from_what_makes_a_value_of_another(self) -> None:
        with pytest.raises(InvalidSettings, match=r"My cannot derive from Settings, .*; write a function that returns"):

            class My(fairlead.Settings):  # type: ignore[misc]
                pass

    def test_a_retry_may_say_when_by_a_timedelta(self) -> None:
        assert Retry(after=2 * MINUTE).after == 120.0
        for wrong in ("5", True, timedelta(-1), float("nan"), 1e300):
            with pytest.raises(InvalidSettings, match=r"Retry after .*; use "):
                Retry(after=wrong)  # type: ignore[arg-type]

    async def test_waiting_for_a_result_takes_a_timedelta_too(self) -> None:
        app = Fairlead("memory://")
        handle = await app.task(work).submit()
        with pytest.raises(TimeoutError, match=r"has not ended after 0.001 s"):
            await handle.result(timeout=timedelta(milliseconds=1))
        with pytest.raises(InvalidTask, match="timeout 'soon' is not a number of seconds"):
            await handle.result(timeout="soon")  # type: ignore[arg-type]
