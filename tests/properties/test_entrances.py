"""One door: whatever an option is given where tasks are declared, submitted or scheduled, all say the same to it.

Each row is a value for an option, and whether it can be stored. It is given at every entrance that can write it down.
What is refused is refused with an error of ours that names the option; what is accepted is read again from the store.
"""

from __future__ import annotations

import enum
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
import pytest

from fairlead import SECOND, Backoff, Fairlead, FairleadError, Priority, RetryRule, TaskHandle
from fairlead.core.task import OnFailure, Task
from fairlead.storage.open import open_store
from fairlead.wire.tasks import HTTP_NAMES
from tests.cli.running import folders
from tests.server.serving import NOBODY, Service
from tests.servers.postgres import PostgresServer
from tests.servers.stores import postgres

__all__ = ["postgres"]


class Whole(int):
    """A number as a library may have its own."""

    def __index__(self) -> int:
        return int(self)


class Text(str):
    """A text as a library may have its own."""

    __slots__ = ()


class Share(float):
    """What numpy's float64 is, too."""


class Line(enum.StrEnum):
    FAST = "fast"


class Hostile:
    """Something that does not even let itself be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


class Row(NamedTuple):
    option: str
    value: Any
    stored: bool


LONG: Final = "x" * 501
NAN, INFINITE = float("nan"), float("inf")
SPANS: Final = ("timeout", "delay")
COUNTS: Final = ("max_retries", "max_crashes")
TEXTS: Final = ("idempotency_key", "tenant", "trace", "concurrency_key")
LISTS: Final = ("requires", "tags")

REFUSED: Final[dict[str, list[Any]]] = {
    "priority": [True, 1, 0, 5, 2.0, "urgent", "", ["high"], Hostile(), {"high": 1}, b"high"],
    "queue": [None, 5, "", "a b", "x" * 201, ["a"], b"a", Text("a"), "ä", "\ud800", Hostile(), {"a": 1}],
    "timeout": [0, -1, "5", True, NAN, INFINITE, -INFINITE, 2**70, 1e300, [5], {}, 400 * 86_400, Decimal(5),
                timedelta(0), timedelta(days=-1), timedelta.max, Hostile()],
    "delay": [-1, "5", True, NAN, INFINITE, 2**70, 1e300, [5], timedelta(days=-1), Hostile(), date(2030, 1, 1)],
    "max_retries": [-1, 10_001, 2**70, True, False, 2.5, "3", [3], NAN, Whole(3), Decimal(3), Hostile()],
    "max_crashes": [-1, 10_001, 2**70, True, 2.5, "3", [3], Whole(3), Hostile()],
    "backoff": [5, 0.5, True, "fast", {"initial": 5}, [1, 2], SECOND, Backoff, RetryRule(), Hostile()],
    "retry_rules": [5, "reject", ["ValueError"], {5: "reject"}, {int: "reject"}, {"A": 5}, {"": "reject"},
                    {"A": RetryRule}, {"A": Backoff()}, {"*": "reject", "A": "reject"}, {Text("A"): "reject"},
                    Hostile(), {"A": Hostile()}, {Hostile: "reject"}],
    "run_at": ["tomorrow", 5, True, "", date(2030, 1, 1), datetime(2030, 1, 1), datetime(1969, 1, 1, tzinfo=UTC),
               datetime(9999, 1, 1, tzinfo=UTC), [2030], Hostile()],
    "requires": ["gpu", 5, {"a": 1}, [1], ["a b"], [None], [["a"]], b"gpu", None, True, [Text("a")], ["\ud800"],
                 [str(n) for n in range(51)], Hostile(), [Hostile()]],
    "tags": ["abc", 5, {"a": 1}, [1], ["a b"], [None], [["a"]], b"abc", None, True, [Text("a")], ["x"] * 51, Hostile()],
    "after": [5, "abc", [5], ["abc"], [None], object(), {"a": 1}, None, True, [[NOBODY]], [Hostile()], [""]],
    "on_failure": ["explode", 5, True, None, "", ["cancel"], Hostile()],
    "parameters": [[], "x", 5, True, Hostile()],
    "idempotency_key": [5, True, "", LONG, ["a"], b"a", Text("a"), "\ud800", Hostile(), {"a": 1}, 2.5],
    "tenant": [5, True, "", LONG, ["a"], b"a", Text("a"), "\ud800", Hostile()],
    "trace": [5, True, LONG, ["a"], b"a", Text("a"), "\ud800", Hostile()],
    "concurrency_key": [5, True, "", LONG, ["a"], b"a", Text("a"), "\ud800", Hostile()],
    "fair_key": [5, True, "", LONG, ["a"], b"a", Text("a"), "\ud800", Hostile()],
    "expires": [0, -1, "5", True, NAN, INFINITE, 2**70, 1e300, [5], {}, 400 * 86_400, timedelta(0), Hostile()],
    "retention": [-1, "5", True, NAN, INFINITE, 2**70, [5], {"finished": 5}, {"completed": -1}, {"completed": True},
                  {5: 5}, 400 * 86_400, timedelta(days=-1), Hostile(), {"completed": Hostile()}],
}  # fmt: skip
ACCEPTED: Final[dict[str, list[Any]]] = {
    "priority": ["high", "normal", Priority.LOW, None],
    "queue": ["a.b:c-d_1", Line.FAST],
    "timeout": [5, 0.5, 1e-9, 366 * 86_400, timedelta(milliseconds=1), 0.5 * SECOND, Share(2.5), None],
    "delay": [0, 0.5, 1e-9, 100 * 366 * 86_400, timedelta(hours=1), None],
    "max_retries": [0, 10_000, None],
    "max_crashes": [0, 10_000, None],
    "backoff": [Backoff(), Backoff(initial=5), Backoff(initial=0.5 * SECOND, factor=1, jitter=0), None],
    "retry_rules": [{}, {ValueError: "reject"}, {"*": RetryRule(max_retries=3, backoff=Backoff(ceiling=1e-9))}, None],
    "run_at": [datetime(2030, 1, 1, tzinfo=UTC), datetime(1971, 1, 1, tzinfo=UTC), None],
    "requires": [["gpu"], {"gpu", "ssd"}, (), [Line.FAST], iter(["gpu"])],
    "tags": [["b", "a"], ("a",), [], [Line.FAST]],
    "after": [[], ()],
    "on_failure": ["cancel", "run_anyway", OnFailure.RUN_ANYWAY],
    "idempotency_key": ["order 7 ä", "a\0b", "😀" * 500, Line.FAST, None],
    "tenant": ["acme", "x" * 500, "a\0b", "\N{RIGHT-TO-LEFT OVERRIDE}", None],
    "trace": ["00-abc", "a\0b", None],
    "concurrency_key": ["user 7", "a\0b", Line.FAST, None],
    "fair_key": ["customer 7", "a\0b", Line.FAST, None],
    "expires": [5, 0.5, 1e-9, 366 * 86_400, timedelta(hours=1), None],
    "retention": [0, 5, timedelta(hours=1), {"completed": 5, "failed": timedelta(hours=1)}, {}, None],
}
ROWS: Final = [
    *(Row(option, value, stored=False) for option, values in REFUSED.items() for value in values),
    *(Row(option, value, stored=True) for option, values in ACCEPTED.items() for value in values),
]
_NOT_OF_SCHEDULES: Final = ("delay", "run_at", "idempotency_key", "after", "on_failure")
_NUMBERS: Final = range(1, 5)
"""The priorities that a body may give as numbers; nowhere else is one a priority."""
_numbers: Final = count()


def _shown(value: object) -> str:
    """The same in every process: workers that share the tests out must agree on their names."""
    if isinstance(value, set) or " at 0x" in _said(value):
        return type(value).__name__
    return _said(value)[:30].encode(errors="replace").decode()


def _said(value: object) -> str:
    try:
        return repr(value)
    except RuntimeError:
        return "hostile"


def test_there_are_enough_rows_and_every_option_has_some() -> None:
    from fairlead.app.task_type import Options

    assert len(REFUSED) + len(ACCEPTED) and sum(map(len, REFUSED.values())) >= 74
    assert set(REFUSED) - {"parameters"} == set(ACCEPTED) == set(Options.__annotations__)


class Entrances:
    """Every way in that can write a row down: each gives back the stored task, or raises, or says why not."""

    def __init__(self, path: Path, postgresql: str) -> None:
        self.app = Fairlead(f"sqlite:///{path}/tasks.db")
        self.transactional = Fairlead(postgresql)
        self.folder = next(folders(path))

    def close(self) -> None:
        self.folder.close()
        for app in (self.app, self.transactional):
            app.connection().close_inline()

    def declaration(self, row: Row) -> Task:
        """`@app.task(…)`."""

        @self.app.task(name=f"work{next(_numbers)}", **{row.option: row.value})
        def work() -> None: ...

        return work.submit_sync().refresh_sync().snapshot

    def submit(self, row: Row) -> Task:
        """`task.options(…).submit_sync()`."""
        handle: TaskHandle[None] = _declared(self.app).options(**{row.option: row.value}).submit_sync()
        return handle.refresh_sync().snapshot

    def submit_in(self, row: Row) -> Task:
        """`task.options(…).submit_in_sync(connection)`."""
        task = _declared(self.transactional).options(**{row.option: row.value})
        with psycopg.connect(self.transactional.store) as connection:
            handle: TaskHandle[None] = task.submit_in_sync(connection)
        return handle.refresh_sync().snapshot

    def cron(self, row: Row) -> Task:
        """`app.schedules.add_sync(…)`, run now."""
        name = f"schedule{next(_numbers)}"
        call = _declared(self.app).options(**{row.option: row.value}).call()
        self.app.schedules.add_sync(name, "@yearly", call)
        return self.app.schedules.run_now_sync(name).refresh_sync().snapshot

    def file(self, row: Row) -> str | Task:
        """`fairlead submit --from-file`."""
        self.folder.write("lines.jsonl", json.dumps({"type": "work", row.option: row.value}))
        ended = self.folder.quick("submit", "--from-file", "lines.jsonl")
        return ended.err if ended.code else self.folder.tasks()[-1]

    def flags(self, row: Row) -> str | Task:
        """`fairlead submit --option value`."""
        flag = "--" + row.option.replace("_", "-")
        ended = self.folder.quick("submit", "work", f"{flag}={row.value}")
        return ended.err if ended.code else self.folder.tasks()[-1]

    def scheduled(self, row: Row) -> str | None:
        """`fairlead schedule add --option value`."""
        flag = "--" + row.option.replace("_", "-")
        ended = self.folder.quick("schedule", "add", f"s{next(_numbers)}", "@yearly", "work", f"{flag}={row.value}")
        return ended.err if ended.code else None


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service(await open_store("memory://")) as service:
        yield service


@pytest.fixture(scope="module")
def entrances(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[Entrances]:
    place = Entrances(tmp_path_factory.mktemp("entrances"), postgres.url(postgres.copy_of_template()))
    yield place
    place.close()


def _declared(app: Fairlead) -> Any:
    @app.task(name=f"work{next(_numbers)}")
    def work() -> None: ...

    return work


def _refusal_or_task(enter: Callable[[Row], Task | str | None], row: Row) -> Task | str | None:
    try:
        return enter(row)
    except FairleadError as error:
        return str(error)


def _names(row: Row, said: str) -> bool:
    return any(name in said.replace("-", "_") for name in (row.option, HTTP_NAMES.get(row.option, row.option)))


def _check(row: Row, entrance: str, said: Task | str | None) -> None:
    """The answer of an entrance: a task that was read from the store, or what is wrong, by the option's name."""
    if row.stored:
        assert not isinstance(said, str), (entrance, row.option, said)
    else:
        assert isinstance(said, str), (entrance, row.option, _shown(row.value), "was accepted")
        assert _names(row, said), (entrance, row.option, said)
        assert ";" in said or entrance in ("http", "flags"), (entrance, "no remedy", said)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.option}-{_shown(row.value)}")
def test_python_says_the_same_wherever_an_option_is_said(row: Row, entrances: Entrances) -> None:
    ways = [entrances.declaration, entrances.submit, entrances.submit_in]
    if row.option not in _NOT_OF_SCHEDULES:
        ways.append(entrances.cron)
    for way in ways:
        # An iterator can be read once.
        value = ["gpu"] if isinstance(row.value, Iterator) and way != entrances.declaration else row.value
        _check(row, way.__name__, _refusal_or_task(way, row._replace(value=value)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.option}-{_shown(row.value)}")
async def test_http_says_the_same(row: Row, service: Service) -> None:
    if not _in_json(row):
        return
    if row.option == "priority" and type(row.value) is int and row.value in _NUMBERS:
        row = row._replace(stored=True)
    task = {"task_type": "work", HTTP_NAMES.get(row.option, row.option): row.value}
    reply = await service.client.post("/api/v1/tasks", content=json.dumps(task))
    _check(row, "http", None if reply.status_code == 201 else str(reply.json()))
    if reply.status_code == 201:
        await service.show(reply.json()["task_id"])
    if row.option not in _NOT_OF_SCHEDULES:
        body = {"name": "nightly", "cron": "@daily", "task": task}
        reply = await service.client.post("/api/v1/schedules", content=json.dumps(body))
        _check(row, "http", None if reply.status_code == 201 else str(reply.json()))
        assert len(await service.engine.schedules.all()) == row.stored


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.option}-{_shown(row.value)}")
def test_the_command_line_says_the_same(row: Row, entrances: Entrances) -> None:
    if _in_json(row) and row.value is not None and row.option != "backoff":
        _check(row, "file", _refusal_or_task(entrances.file, row))
    if _in_flags(row):
        _check(row, "flags", _refusal_or_task(entrances.flags, row))
        if row.option in ("priority", "queue", "timeout", "max_retries"):
            _check(row, "flags", _refusal_or_task(entrances.scheduled, row))


def _in_json(row: Row) -> bool:
    """Whether JSON can say the same: rules, backoffs and retentions have another shape there."""
    shaped = row.option in ("backoff", "retry_rules", "retention")
    other_shape = shaped and (row.stored or isinstance(row.value, dict))
    return _plain(row.value) and not other_shape and not (row.option == "run_at" and row.stored)


def _plain(value: Any) -> bool:
    if type(value) in (list, tuple):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(map(_plain, [*value, *value.values()])) and all(type(key) is str for key in value)
    if type(value) is str:
        # What has no UTF-8 is no JSON: the document is refused as a whole.
        return value.encode(errors="replace").decode() == value
    return value is None or type(value) in (int, bool) or (type(value) is float and abs(value) < INFINITE)


def _in_flags(row: Row) -> bool:
    """Whether a flag can say the same: it has text alone, and lists are written in another way."""
    if row.option in ("timeout", "delay", "max_retries"):
        return type(row.value) in (int, float, bool)
    texts = ("priority", "queue", "idempotency_key", "concurrency_key", "on_failure", "run_at")
    return row.option in texts and type(row.value) is str and row.value.isprintable()
