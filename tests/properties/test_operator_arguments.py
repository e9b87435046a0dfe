"""Whatever an operator's call is given, it is done or refused with an error of ours, short and in valid Unicode.

Each call of the SDK that takes an argument is given values of every kind in it, on a store and on a server in front of
one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest

from fairlead import Fairlead, FairleadError, Priority
from fairlead.core.settings import Settings
from fairlead.storage.memory import MemoryStore
from tests.client.serving import Port
from tests.properties.test_entrances import Line, Share, Text, Whole


class Unshown:
    """Something that does not let itself be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


VALUES: Final[list[Any]] = [
    *(None, True, False, 0, -1, 5, 2.5, 2**53, 2**64, 10**400, 1e300, float("nan"), float("inf"), 1j),
    *(Whole(5), Share(2.5), Decimal(5), Decimal("nan"), Decimal("snan"), Priority.HIGH),
    *("", "a", "5", "a b", "a/b", "\0", "\ud800", "x" * 100_000, "é", Text("a"), Line.FAST, b"a", bytearray(b"a")),
    *(timedelta(0), timedelta(seconds=5), timedelta.max, date(2030, 1, 1)),
    *(datetime(2030, 1, 1), datetime(1900, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)),
    *([], ["a"], [None], ("a",), {"a"}, {}, {"a": 1}, {1: 2}, iter(["a"]), object(), object, Unshown(), len),
]
LONGEST_MESSAGE: Final = 600

Calls = dict[str, Callable[[Fairlead, Any], Awaitable[object]]]
NAMED: Final[Calls] = {
    **{f"schedules.{each}": lambda app, said, each=each: getattr(app.schedules, each)(said)  # type: ignore[misc]
       for each in ("get", "pause", "resume", "remove", "run_now", "preview")},
    **{f"queues.{each}": lambda app, said, each=each: getattr(app.queues, each)(said)  # type: ignore[misc]
       for each in ("get", "pause", "resume", "reset", "purge", "change", "pause_type", "resume_type")},
    **{f"circuits.{each}": lambda app, said, each=each: getattr(app.circuits, each)(said)  # type: ignore[misc]
       for each in ("get", "remove", "open", "close")},
    **{f"tasks.{each}": lambda app, said, each=each: getattr(app.tasks, each)(said)  # type: ignore[misc]
       for each in ("get", "cancel", "replay", "discard", "search")},
    **{f"dead_letters.{each}": lambda app, said, each=each: getattr(app.dead_letters, each)(said)  # type: ignore[misc]
       for each in ("search", "groups")},
    **{f"operations.{each}": lambda app, said, each=each: getattr(app.operations, each)(said)  # type: ignore[misc]
       for each in ("get", "pause", "resume", "cancel", "finish")},
    **{f"workers.{each}": lambda app, said, each=each: getattr(app.workers, each)(said)  # type: ignore[misc]
       for each in ("get", "drain", "autoscale")},
    **{f"quarantine.{each}": lambda app, said, each=each: getattr(app.quarantine, each)(said)  # type: ignore[misc]
       for each in ("get", "restore", "discard")},
}  # fmt: skip
FURTHER: Final[Calls] = {
    "schedules.add call": lambda app, said: app.schedules.add("nightly", "@daily", said),
    "schedules.preview count": lambda app, said: app.schedules.preview("known", said),
    "circuits.set": lambda app, said: app.circuits.set("work", said),
    "tasks.search limit": lambda app, said: app.tasks.search(limit=said),
    "tasks.search after": lambda app, said: app.tasks.search(after=said),
    "tasks.search queue": lambda app, said: app.tasks.search(f"queue:{said}" if isinstance(said, str) else said),
    "dead_letters.search limit": lambda app, said: app.dead_letters.search(limit=said),
    "operations.start action": lambda app, said: app.operations.start(said, "type:none"),
    **{f"operations.start {each}":
       lambda app, said, each=each: app.operations.start("replay", "type:none", **{each: said})  # type: ignore[misc]
       for each in ("as_of", "expected", "rate", "canary", "priority", "reset_retries", "who", "limit")},
    "workers.autoscale within": lambda app, said: app.workers.autoscale(within=said),
    "workers.autoscale capacity": lambda app, said: app.workers.autoscale(capacity=said),
    "quarantine.restore parts": lambda app, said: app.quarantine.restore("schedule/nightly", said),
    **{f"queues.change {each}":
       lambda app, said, each=each: app.queues.change("default", **{each: said})  # type: ignore[misc]
       for each in ("bound", "order", "priority", "timeout", "backoff", "rate", "key_running", "type_rate")},
}  # fmt: skip


@pytest.fixture(params=["store", "server"])
async def app(request: pytest.FixtureRequest) -> AsyncIterator[Fairlead]:
    """An app with one schedule, on a store or on a server."""
    port = Port(MemoryStore(), Settings())
    if request.param == "server":
        await port.open()
    app = port.app() if request.param == "server" else Fairlead("memory://", settings=Settings())

    @app.task
    def work() -> None: ...

    await app.schedules.add("known", "@daily", work.call())
    yield app
    await app.close()
    await port.end()


@pytest.mark.parametrize("name", [*NAMED, *FURTHER])
async def test_an_argument_is_good_or_refused_by_an_error_of_ours(name: str, app: Fairlead) -> None:
    call = (NAMED | FURTHER)[name]
    for said in VALUES:
        try:
            await call(app, said)
        except FairleadError as error:
            assert len(str(error).encode()) <= LONGEST_MESSAGE, (name, str(error)[:LONGEST_MESSAGE])


@pytest.mark.parametrize("option", ["queues", "capabilities", "settings"])
async def test_a_worker_is_made_of_names_and_settings(option: str, app: Fairlead) -> None:
    for said in (5, "mail", b"mail", ["a b"], [None], [5], {"mail": 1}, object(), Unshown(), True, [Text("a")], ["é"]):
        options: dict[str, Any] = {option: said}
        with pytest.raises(FairleadError, match=rf"{option} .*; "):
            await app.worker(keeper_process=False, **options)
    with pytest.raises(FairleadError, match=r"queues is empty.*; name at least one"):
        await app.worker(queues=[])
