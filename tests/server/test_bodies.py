"""Bodies are bounded, timed and unambiguous."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive

from fairlead.server.http.bodies import LARGE, BodyReader, Decoder, Disconnected, _distinct, check_unambiguous
from fairlead.server.http.problems import Refusal


def arriving(*messages: dict[str, Any]) -> Receive:
    """What the caller sends, and nothing more ever after."""
    rest = list(messages)

    async def receive() -> dict[str, Any]:
        if rest:
            return rest.pop(0)
        return await asyncio.Future()

    return receive


def chunk(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def read(*messages: dict[str, Any], limit: int = 10, length: bytes | None = None, seconds: float = 60) -> bytes:
    headers = [] if length is None else [(b"content-length", length)]
    return await BodyReader(seconds).read({"type": "http", "headers": headers}, arriving(*messages), limit)


async def test_a_body_is_the_sum_of_its_chunks() -> None:
    assert await read(chunk(b"0123", more=True), chunk(b"", more=True), chunk(b"456789")) == b"0123456789"


@pytest.mark.parametrize("length", [b"11", b"9" * 400])
async def test_a_body_that_announces_too_much_is_not_read(length: bytes) -> None:
    with pytest.raises(Refusal, match="over the limit of 10 bytes") as refused:
        await read(length=length)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    "messages", [[chunk(b"0" * 11)], [chunk(b"0" * 6, more=True), chunk(b"0" * 6, more=True)]], ids=["whole", "parts"]
)
async def test_a_body_that_does_not_announce_it_is_not_read_to_its_end(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(Refusal, match="over the limit of 10 bytes"):
        await read(*messages)


async def test_a_caller_that_leaves_is_not_waited_for() -> None:
    with pytest.raises(Disconnected):
        await read(chunk(b"0", more=True), {"type": "http.disconnect"})


@pytest.mark.parametrize("begun", [[], [chunk(b"0", more=True)]], ids=["nothing", "a part"])
async def test_a_body_that_does_not_come_is_refused_and_its_task_goes_on(begun: list[dict[str, Any]]) -> None:
    with pytest.raises(Refusal, match=r"did not arrive within 0\.02 s") as refused:
        await read(*begun, seconds=0.02)
    assert refused.value.status == 408
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancel_from_elsewhere_stays_a_cancel() -> None:
    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_the_timer_rests_when_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    set_for: list[Callable[[], object]] = []
    monkeypatch.setattr(loop, "call_later", lambda _, callback: set_for.append(callback))
    reader = BodyReader(60)
    scope: dict[str, Any] = {"type": "http", "headers": []}
    assert await reader.read(scope, arriving(chunk(b"a")), 10) == b"a"
    (look,) = set_for
    look()
    assert len(set_for) == 1

    assert await reader.read(scope, arriving(chunk(b"b")), 10) == b"b"
    assert len(set_for) == 2


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


@pytest.mark.parametrize(
    ("body", "status", "field", "words"),
    [
        (b"", 400, None, "not valid JSON"),
        (b'{"name": "x"', 400, None, "truncated"),
        (b'{"name": NaN}', 400, None, "not valid JSON"),
        (b'{"name": "\xff"}', 400, None, "utf-8"),
        (b'{"name": "x", "name": "y"}', 400, "name", "twice"),
        (b'{"name": "x", "count": "many"}', 422, "count", "int"),
        (b'{"nome": "x"}', 422, None, "nome"),
        (b"[]", 422, None, "object"),
        (b"[" * 100_000, 400, None, "nested too deeply"),
        (b"[" * 65 + b"]" * 65, 400, None, "over 64 levels"),
    ],
)
async def test_what_is_not_the_shape_is_refused_by_name(
    body: bytes, status: int, field: str | None, words: str
) -> None:
    with pytest.raises(Refusal) as refused:
        await Decoder(Shape if not body.startswith(b"[[") else Any)(body)
    problem = refused.value.problem
    assert problem.status == status
    assert field is None or problem.field == field
    assert words.lower() in problem.detail.lower()


async def test_sixty_four_levels_are_not_too_many() -> None:
    assert await Decoder(Any)(b"[" * 64 + b"]" * 64)


class Compared(str):
    """A name that counts how often it is compared or hashed."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        Compared.times += 1
        return super().__hash__()


def test_a_name_that_comes_twice_is_found_in_as_many_steps_as_there_are_names() -> None:
    steps = []
    for count in (1_000, 8_000):
        names = [*(f"{number:x}" for number in range(count)), f"{count - 1:x}"]
        Compared.times = 0
        with pytest.raises(Refusal, match="twice"):
            _distinct([(Compared(name), 0) for name in names])
        steps.append(Compared.times)
    assert steps[1] < 10 * steps[0]


async def test_large_bodies_are_decoded_all_the_same() -> None:
    name = "x:" * LARGE
    assert (await Decoder(Shape)(json.dumps({"name": name}).encode())).name == name
    with pytest.raises(Refusal, match="'name' twice"):
        await Decoder(Shape)(json.dumps({"name": name}).encode()[:-1] + b', "name": "y"}')


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab:"\\é\n'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='ab:"é', max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=values, ascii_only=st.booleans())
def test_distinct_keys_are_never_refused(value: object, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    check_unambiguous(body, msgspec.json.decode(body))


@given(value=values, key=st.text(alphabet='ab:"é', max_size=3))
def test_a_key_named_twice_is_always_refused(value: object, key: str) -> None:
    inner = json.dumps(value)
    body = f'{{"z": [{{{json.dumps(key)}: {inner}, "other:": 1, {json.dumps(key)}: {inner}}}]}}'.encode()
    with pytest.raises(Refusal, match="twice"):
        check_unambiguous(body, msgspec.json.decode(body))


def test_numbers_too_long_for_python_are_no_fault_of_the_check() -> None:
    body = b'{"a": "\\u003a", "b": ' + b"1" * 5_000 + b"}"
    check_unambiguous(body, {"a": ":", "b": 1})
