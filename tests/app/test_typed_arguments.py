"""Arguments and results of the types that people annotate: those of Pydantic and paths beside what msgspec knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import attrs
import msgspec
import pytest
from annotated_types import MinLen
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field

from fairlead import Fairlead, InvalidSettings, InvalidTask, State
from fairlead.core.submission import Submission
from fairlead.engine.runtime.inline import run_inline


class Item(BaseModel):
    name: str = Field(alias="itemName")
    price: Decimal
    bought: datetime


class Cart(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Item] = []
    owner: UUID | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.items)


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    strict: timedelta


class Names(RootModel[list[str]]): ...


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    at: datetime


@dataclass
class Order:
    number: int
    cart: Cart | None = None


@attrs.define
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    colour: str


class Colour(StrEnum):
    RED = "red"


Payment = Annotated[Card | Cash, Field(discriminator="kind")]

ITEM = Item(itemName="tea", price=Decimal("1.50"), bought=datetime(2026, 1, 1, tzinfo=UTC))
CART = Cart(items=[ITEM], owner=UUID(int=7))

VALUES: list[tuple[Any, Any]] = [
    (Cart, CART),
    (Cart | None, None),
    (Cart | None, CART),
    (list[Cart], [CART, Cart()]),
    (dict[str, Cart], {"a": CART}),
    (Card | Cash, Cash(strict=timedelta(seconds=90))),
    (Payment, Card(number="4")),
    (list[Payment], [Card(number="4"), Cash(strict=timedelta(1))]),
    (Card | int, 5),
    (Names, Names(["a"])),
    (Strict, Strict(at=datetime(2026, 1, 1, tzinfo=UTC))),
    (Order, Order(1, CART)),
    (Path, Path("/tmp/x")),
    (Path | None, None),
    (list[PurePosixPath], [PurePosixPath("a/b")]),
    (Point, Point(1)),
    (Options, {"colour": "red"}),
    (Order | None, Order(2)),
    (int | str, "five"),
    (Colour, Colour.RED),
    (Annotated[int, msgspec.Meta(gt=0)], 5),
    (Annotated[int, Field(gt=0)], 5),
    (Annotated[list[str], MinLen(1)], ["a"]),
    (object, {"a": 1}),
]


def passed(annotation: Any) -> Callable[..., Any]:
    def passes(value: Any) -> Any:
        assert not isinstance(value, msgspec.Raw)
        return value

    passes.__annotations__ = {"value": annotation, "return": annotation}
    return passes


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=str)
def test_a_value_comes_to_its_handler_and_back_as_it_was(annotation: Any, value: Any) -> None:
    app = Fairlead("memory://")
    task = app.task(max_retries=0)(passed(annotation))
    with app.testing() as rehearsal:
        handles = [task.submit_sync(value), task.submit_sync(value=value)]
        rehearsal.run_sync()
        results = [handle.result_sync(timeout=1) for handle in handles]
    assert results == [value, value]
    assert {type(result) for result in results} == {type(value)}


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (Cart, {"items": [{"itemName": "tea"}]}, r"items\.0\.price: Field required; .* - at `\$\.value`"),
        (Cart, {"size": 1}, "size: Extra inputs are not permitted"),
        (list[Cart], [CART, 5], r"should be an object - at `\$\.value\[1\]`"),
        (Card | Cash, {"kind": "card"}, r"Field required.* - at `\$\.value`"),
        (Annotated[int, Field(gt=0)], -1, r"greater than 0 - at `\$\.value`"),
        (Annotated[int, msgspec.Meta(gt=0)], -1, r"`int` >= 1 - at `\$\.value`"),
        (Annotated[list[str], MinLen(1)], [], "at least 1 item"),
        (Path, 5, r"Expected `str`, got `int` - at `\$\.value`"),
        (Point, {"x": "a"}, r"Expected `int`, got `str` - at `\$\.value\.x`"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_with_its_path(annotation: Any, value: Any, message: str) -> None:
    app = Fairlead("memory://")
    task = app.task(passed(annotation))
    with app.testing() as rehearsal:
        with pytest.raises(InvalidTask, match=message):
            task.submit_sync(value)
        # As a submitter may send it that does not know the signature.
        engine = app.store_connection().inline()
        sent = run_inline(
            engine.submit(Submission(type="passes", parameters=msgspec.json.encode({"value": value}, enc_hook=dumped)))
        )
        rehearsal.run_sync()
        failure = app.tasks.get_sync(sent.task.id).status.failure
    assert failure is not None
    assert failure.type == "InvalidArguments"
    assert "\n" not in failure.message


def dumped(value: Any) -> Any:
    return value.model_dump(mode="json")


def test_models_of_another_language_may_use_aliases_or_names() -> None:
    app = Fairlead("memory://")

    @app.task
    def first(cart: Cart) -> str:
        return cart.items[0].name

    with app.testing() as rehearsal:
        engine = app.store_connection().inline()
        handles = []
        for name in ("name", "itemName"):
            item = f'{{"{name}": "tea", "price": "1", "bought": "2026-01-01T00:00:00Z"}}'
            sent = Submission(type=first.handler.type, parameters=f'{{"cart": {{"items": [{item}]}}}}'.encode())
            handles.append(run_inline(engine.submit(sent)).task)
        rehearsal.run_sync()
        assert [app.tasks.get_sync(task.id).status.result for task in handles] == [b'"tea"', b'"tea"']


def test_what_it_knows_of_its_types_is_in_the_published_schema() -> None:
    app = Fairlead("memory://")

    @app.task
    def file(cart: Cart, folder: Path, number: Annotated[int, msgspec.Meta(gt=0)], what: object) -> None: ...

    schema = msgspec.json.decode(file.handler.signature.schema)["$defs"]["Arguments"]["properties"]
    assert schema["cart"]["properties"].keys() == {"items", "owner"}
    assert schema["folder"] == {"type": "string", "format": "path"}
    assert schema["number"] == {"type": "integer", "exclusiveMinimum": 0}


def test_a_number_in_a_model_that_json_has_not_is_refused() -> None:
    class Measure(BaseModel):
        value: float | None

    app = Fairlead("memory://")

    @app.task
    def weigh(measure: Any) -> None: ...

    with pytest.raises(InvalidTask, match=r"nan is not a number that JSON has - at `\$\.measure\.value`"):
        weigh.call(Measure(value=float("nan")))


def strange_parameter(half: Fraction) -> None: ...
def strange_result() -> Fraction: ...  # type: ignore[empty-body]
def strange_inside(orders: list[dict[str, Fraction | None]]) -> None: ...
def strange_rest(**halves: Fraction) -> None: ...
def strange_union(half: Fraction | int) -> None: ...
def strange_for_pydantic(half: Card | Point | Callable[[], int]) -> None: ...


STRANGE = [
    (strange_parameter, "parameter half: Fraction has no JSON form; annotate it with"),
    (strange_result, "its result: Fraction has no JSON form; annotate it with"),
    (strange_inside, "parameter orders: Fraction has no JSON form; annotate it with"),
    (strange_rest, "parameter halves: Fraction has no JSON form; annotate it with"),
    (strange_union, "parameter half: it has no JSON form: Type unions containing a custom type"),
    (strange_for_pydantic, "parameter half: it has no JSON form: "),
]


@pytest.mark.parametrize(("function", "message"), STRANGE, ids=lambda each: getattr(each, "__name__", ""))
async def test_what_json_cannot_hold_is_refused_at_the_first_submit_and_at_the_start_of_a_worker(
    function: Callable[..., Any], message: str
) -> None:
    app = Fairlead("memory://")
    task = app.task(function)
    arguments = {name: None for name in function.__annotations__ if name not in ("return", "halves")}
    with pytest.raises(InvalidTask, match=f"cannot be called like this: task {function.__name__}: {message}"):
        await task.submit(**arguments)
    with pytest.raises(InvalidSettings, match=f"task {function.__name__}: {message}"):
        await app.worker(keeper_process=False)


def test_a_new_signature_meets_tasks_that_were_submitted_before() -> None:
    app = Fairlead("memory://")
    changed = Fairlead("memory://")

    @app.task(name="bill")
    def before(order: int, note: str = "") -> None: ...

    @changed.task(name="bill", max_retries=0)
    def after(order: int, currency: str = "EUR", *, cart: Cart | None = None) -> str:
        return f"{order} {currency} {cart}"

    waiting = [before.call(1).submission, before.call(2, "urgent").submission]
    with changed.testing() as rehearsal:
        engine = changed.store_connection().inline()
        tasks = [run_inline(engine.submit(each)).task for each in waiting]
        rehearsal.run_sync()
        first, second = [changed.tasks.get_sync(task.id) for task in tasks]
    assert (first.state, first.status.result) == (State.COMPLETED, b'"1 EUR None"')
    assert second.state is State.FAILED
    assert second.status.failure is not None
    assert second.status.failure.type == "InvalidArguments"
    assert "unknown field `note`" in second.status.failure.message
