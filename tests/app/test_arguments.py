"""Arguments arrive as what the handler's annotations say."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pytest

from fairlead import CircuitSettings, Fairlead, InvalidSettings, InvalidTask


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Box(msgspec.Struct):
    corner: Point
    label: str | None = None


POINT = Point(3, 4)


class Options(TypedDict, total=False):
    fast: bool


VALUES: list[tuple[Any, Any]] = [
    (int, 2**70),
    (float, 0.1),
    (str, "ß\u0000\U0001f600"),
    (bytes, b"\x00\xff"),
    (bool, True),
    (Point, Point(1, 2)),
    (Box, Box(Point(1), "a")),
    (list[Box], [Box(Point(1)), Box(Point(2, 3))]),
    (Colour, Colour.BLUE),
    (datetime, datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (date, date(2030, 1, 2)),
    (timedelta, timedelta(seconds=90)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (int | None, None),
    (Literal["a", "b"], "b"),
    (dict[int, str], {1: "a"}),
    (set[int], {1, 2}),
    (tuple[int, str], (1, "a")),
    (Options, {"fast": True}),
    (Annotated[int, msgspec.Meta(gt=0)], 1),
    (Any, {"any": ["thing", 1, None]}),
]


def taking(annotation: Any, default: Any = None) -> Callable[..., Any]:
    async def take(value: Any) -> Any: ...

    async def take_default(value: Any = default) -> Any: ...

    function = take if default is None else take_default
    function.__annotations__ = {"value": annotation, "return": annotation}
    return function


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=[str(annotation) for annotation, _ in VALUES])
async def test_an_argument_and_a_result_keep_their_type(annotation: Any, value: Any) -> None:
    app = Fairlead("memory://")
    seen: list[Any] = []

    async def take(value: Any) -> Any:
        seen.append(value)
        return value

    take.__annotations__ = {"value": annotation, "return": annotation}
    task = app.task(take)
    async with app.testing() as rehearsal:
        handle = await task.submit(value)
        await rehearsal.run()
        result = await handle.result()
    assert seen == [value]
    assert type(seen[0]) is type(value)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (Box, {"corner": {"x": "one"}}, "$.value.corner.x"),
        (list[Point], [{"x": 1}, {}], "$.value[1]"),
        (Colour, "green", "$.value"),
        (Annotated[int, msgspec.Meta(gt=0)], 0, "$.value"),
        (dict[str, int], {"a": "b"}, "$.value[...]"),
        (datetime, "yesterday", "$.value"),
    ],
)
def test_a_refusal_names_the_path(annotation: Any, value: Any, path: str) -> None:
    task = Fairlead("memory://").task(taking(annotation))
    with pytest.raises(InvalidTask) as refusal:
        task.submit_sync(value)
    assert path in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "named", "complaint"),
    [
        ((), {}, "missing a required argument: 'text'"),
        (("a", 2, True), {}, "too many positional arguments"),
        (("a",), {"text": "b"}, "multiple values for argument 'text'"),
        (("a",), {"quiet": True}, "unexpected keyword argument 'quiet'"),
    ],
)
def test_a_call_is_refused_as_python_would_refuse_it(
    arguments: tuple[Any, ...], named: dict[str, Any], complaint: str
) -> None:
    app = Fairlead("memory://")

    @app.task
    def note(text: str, times: int = 1, *, loud: bool = False) -> None: ...

    with pytest.raises(InvalidTask, match=complaint):
        note.call(*arguments, **named)


def test_a_call_without_a_required_keyword_is_refused() -> None:
    app = Fairlead("memory://")

    @app.task
    def send(times: int = 1, *, to: str) -> None: ...

    with pytest.raises(InvalidTask, match="missing a required"):
        send.call(2)  # type: ignore[call-arg]


def test_arguments_are_stored_in_the_order_of_the_signature() -> None:
    app = Fairlead("memory://")

    @app.task
    def note(text: str, times: int = 1, *, loud: bool = False) -> None: ...

    assert note.call("a").submission.parameters == b'{"text":"a"}'
    assert note.call("a", 2).submission.parameters == b'{"text":"a","times":2}'
    assert note.call(loud=True, times=2, text="a").submission.parameters == b'{"text":"a","times":2,"loud":true}'


async def test_defaults_are_the_functions_own() -> None:
    app = Fairlead("memory://")
    seen: list[object] = []

    @app.task
    async def take(
        point: Point = POINT, colour: Colour = Colour.RED, *, sizes: list[int] | None = None, rest: object = ...
    ) -> None:
        seen.extend((point, colour, sizes, rest))

    async with app.testing() as rehearsal:
        handle = await take.submit()
        assert handle.snapshot.spec.parameters == b"{}"
        await rehearsal.run()
        await handle.result()
    assert seen == [Point(3, 4), Colour.RED, None, ...]


async def test_named_and_further_arguments_arrive_together() -> None:
    app = Fairlead("memory://")
    seen: list[object] = []

    @app.task
    async def take(first: int, second: int = 2, **others: Point) -> None:
        seen.extend((first, second, others))

    async with app.testing() as rehearsal:
        await take.submit(1, kwargs=Point(1), others=Point(2))
        await rehearsal.run()
    assert seen == [1, 2, {"kwargs": Point(1), "others": Point(2)}]


def test_further_arguments_are_checked_too() -> None:
    app = Fairlead("memory://")

    @app.task
    async def take(**others: int) -> None: ...

    submit: object = take.submit_sync
    assert callable(submit)
    with pytest.raises(InvalidTask, match=r"Expected `int`, got `str` - at `\$\.b`"):
        submit(a=1, b="two")


def test_arguments_without_a_name_are_refused_when_the_task_is_defined() -> None:
    app = Fairlead("memory://")

    def positional(first: int, /) -> None: ...

    def variable(*numbers: int) -> None: ...

    for function, parameter in ((positional, "first"), (variable, r"\*numbers")):
        with pytest.raises(InvalidSettings, match=f"parameter {parameter}.* has no name to be stored under"):
            app.task(function)


async def test_an_annotation_that_cannot_be_used_is_refused_before_a_worker_starts() -> None:
    app = Fairlead("memory://")

    @app.cron("* * * * *")
    @app.task
    async def well() -> None: ...

    @app.task(circuit=CircuitSettings())
    async def take(value: Undefined) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(InvalidSettings, match=r"take: name 'Undefined' is not defined; annotations must name types"):
        await app.worker()
    declared = (await app.schedules.all(), await app.circuits.all(), await app.types.all())
    assert not any(declared), "a version that cannot run changes nothing for those that do"


async def test_a_result_that_is_not_what_its_annotation_says_is_an_error_of_its_own() -> None:
    app = Fairlead("memory://")

    @app.task
    async def lie() -> int:
        wrong: Any = "one"
        return wrong  # type: ignore[no-any-return]

    async with app.testing() as rehearsal:
        handle = await lie.submit()
        await rehearsal.run()
        with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
            await handle.result()
