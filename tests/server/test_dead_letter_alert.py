"""The alert of dead letters: in the server's log, and by a webhook, once for each burst."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.app.config import load
from fairlead.cli.commands.serve import _dead_letter_webhook, open_server
from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.core.events import Failed
from fairlead.core.identity import WorkerId
from fairlead.core.retry import Reject
from fairlead.core.settings import Settings
from fairlead.core.submission import Submission
from fairlead.engine.engine import Settlement
from fairlead.engine.metrics.collector import Metrics
from fairlead.server.live import dead_letter_alert
from fairlead.server.live.dead_letter_alert import MOST_LINES, MOST_TOLD, DeadLetterAlert, DeadLetterNotice, Excess
from fairlead.server.live.queue_depths import Depths
from fairlead.server.server import Server
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from fairlead.storage.values import Tally
from tests.engine.building import BOOM, Bench
from tests.worker.builtin.servers import HttpServer, Request

DELIVERED = b"HTTP/1.1 204 No Content\r\n\r\n"


class Alerted(Bench):
    """A bench with an alert that somebody listens to."""

    def __init__(self, settings: Settings | None = None, server: ServerSettings | None = None) -> None:
        super().__init__(settings or Settings(dead_letter_alert=3))
        self.notices: list[DeadLetterNotice] = []
        self.failure: Exception | None = None
        self.server = server or ServerSettings()
        self.start()

    def start(self) -> None:
        """Start the server, anew."""
        self.alert = DeadLetterAlert(self.engine, Depths(self.engine), self.server, self._called)

    def _called(self, notice: DeadLetterNotice) -> None:
        self.notices.append(notice)
        if self.failure is not None:
            raise self.failure

    async def die(self, count: int = 1, *, task_type: str = "mail", queue: str = "default") -> None:
        wishes = [Submission(type=task_type, queue=queue, max_retries=0) for _ in range(count)]
        await self.engine.submit_many(wishes)
        tasks = await self.engine.claim(WorkerId("one"), [queue], limit=count)
        await self.engine.settle([Settlement(task, Failed(failure=BOOM)) for task in tasks])

    async def look(self, seconds: int = 10) -> list[Excess]:
        """Look once more, after so many seconds; what the webhook was told by that."""
        self.clock.advance(seconds * 1_000_000)
        before = len(self.notices)
        await self.alert.take()
        await self.alert.settled()
        return [each for notice in self.notices[before:] for each in notice.alerts]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fairlead.dead_letters"]


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "fairlead.dead_letters")


async def test_a_burst_is_logged_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Alerted()
    assert await bench.look() == []
    await bench.die(2)
    assert await bench.look() == []
    await bench.die(2)
    assert await bench.look() == [Excess(task_type="mail", dead_letters=4, new=4, threshold=3)]
    for _ in range(20):
        await bench.die(3)
        assert await bench.look(60) == []
    (line,) = said(caplog)
    assert line == (
        "task type mail has 4 dead letters, 4 of them new: its alert threshold is 3; `fairlead dlq groups -q "
        "type:mail` shows their errors"
    )
    await bench.look(900)
    await bench.die(3)
    assert await bench.look() == [Excess(task_type="mail", dead_letters=67, new=3, threshold=3)]


async def test_queues_and_single_types_have_thresholds_of_their_own() -> None:
    bench = Alerted(
        Settings(dead_letter_alerts=(("charge", 1),)), ServerSettings(dead_letter_queue_alerts=(("images", 2),))
    )
    await bench.look()
    await bench.die(1, task_type="charge")
    await bench.die(9, task_type="mail")
    await bench.die(1, task_type="resize", queue="images")
    assert await bench.look() == [Excess(task_type="charge", dead_letters=1, new=1, threshold=1)]
    await bench.die(1, task_type="crop", queue="images")
    assert await bench.look(60) == [Excess(queue="images", dead_letters=2, new=2, threshold=2)]


async def test_what_was_there_when_the_server_started_is_logged_and_not_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Alerted()
    await bench.die(5)
    for _ in range(3):
        bench.start()
        assert [*await bench.look(), *await bench.look(3_600)] == []
    assert len(said(caplog)) == 3
    await bench.die(3)
    assert await bench.look() == [Excess(task_type="mail", dead_letters=8, new=3, threshold=3)]


async def test_a_flood_of_types_is_a_few_lines_and_one_call_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bench = Alerted(Settings(dead_letter_alert=1))
    await bench.look()
    for number in range(MOST_TOLD + 20):
        await bench.die(task_type=f"type-{number:03}")
    assert len(await bench.look()) == MOST_TOLD
    assert bench.notices[-1].more == 20
    assert len(said(caplog)) == MOST_LINES + 1 and f"{MOST_TOLD + 20 - MOST_LINES} more" in said(caplog)[-1]
    for number in range(5):
        await bench.die(task_type=f"late-{number}")
        assert await bench.look() == [], "called a moment ago"
    assert [each.task_type for each in await bench.look(60)] == [f"late-{number}" for number in range(5)]
    assert len(bench.notices) == 2


async def test_a_webhook_that_fails_is_logged_and_not_called_twice_for_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = Alerted()
    await bench.look()
    bench.failure = Reject("https://hooks.example answered 500 Oops:\nfake line")
    await bench.die(3)
    await bench.look()
    await bench.look(120)
    assert len(bench.notices) == 1
    assert said(caplog)[-1] == (
        "the dead-letter webhook was not told of mail: https://hooks.example answered 500 Oops: fake line"
    )


async def test_a_webhook_that_hangs_holds_up_nothing_and_is_not_called_meanwhile() -> None:
    bench = Alerted()
    let_go = threading.Event()

    def hang(notice: DeadLetterNotice) -> None:
        bench.notices.append(notice)
        let_go.wait(60)

    bench.alert._call = hang
    await bench.look()
    await bench.die(3)
    bench.clock.advance(10_000_000)
    await bench.alert.take()
    await bench.die(3, task_type="other")
    bench.clock.advance(600_000_000)
    await bench.alert.take()
    let_go.set()
    await bench.alert.settled()
    assert [each.task_type for each in await bench.look()] == ["other"]
    assert len(bench.notices) == 2


async def test_what_has_no_threshold_is_not_looked_at() -> None:
    bench = Alerted(Settings())
    assert not bench.alert.is_wanted
    async with asyncio.timeout(60):
        await bench.alert.run()


async def test_a_store_that_is_away_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(MemoryStore):
        looks = 0

        async def tally(self) -> Tally:
            Away.looks += 1
            if Away.looks == 2:
                raise StoreUnavailable("away")
            return await super().tally()

    monkeypatch.setattr(dead_letter_alert, "INTERVAL", 0.01)
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    engine = AdminEngine(Away(), Settings(dead_letter_alert=1))
    alert = DeadLetterAlert(
        engine, Depths(engine), ServerSettings(), lambda notice: loop.call_soon_threadsafe(called.set)
    )
    looking = asyncio.create_task(alert.run())
    async with asyncio.timeout(60):
        while Away.looks < 3:  # noqa: ASYNC110 - a store has no event for it
            await asyncio.sleep(0)
        await engine.submit(Submission(type="mail", max_retries=0))
        (task,) = await engine.claim(WorkerId("one"), ["default"], limit=1)
        await engine.settle([Settlement(task, Failed(failure=BOOM))])
        await called.wait()
    looking.cancel()
    await engine.close()


@pytest.fixture
def receiver() -> Iterator[HttpServer]:
    with HttpServer(lambda request: DELIVERED) as server:
        yield server


def configured(tmp_path: Path, **environ: str) -> Any:
    return load({}, {f"FAIRLEAD_{name}": value for name, value in environ.items()}, tmp_path)


async def test_a_running_server_calls_its_webhook(
    receiver: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_alert, "INTERVAL", 0.01)
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(request: Request) -> bytes:
        loop.call_soon_threadsafe(arrived.set)
        return DELIVERED

    receiver._answer = answer
    engine = AdminEngine(MemoryStore(), Settings(dead_letter_alert=2))
    configuration = configured(
        tmp_path, PORT="0", DEAD_LETTER_WEBHOOK=f"http://127.0.0.1:{receiver.port}/hook?token=s3cret",
        WEBHOOK_ALLOW_HTTP="true", WEBHOOK_ALLOW_PRIVATE="true",
    )  # fmt: skip
    server: Server = await open_server(engine, configuration, Metrics())
    serving = asyncio.create_task(server.run())
    async with asyncio.timeout(60):
        while server._alert._bursts is None:  # noqa: ASYNC110 - it has no event for its first look
            await asyncio.sleep(0.01)
        await engine.submit_many([Submission(type="mail", max_retries=0) for _ in range(2)])
        tasks = await engine.claim(WorkerId("one"), ["default"], limit=2)
        await engine.settle([Settlement(task, Failed(failure=BOOM)) for task in tasks])
        await arrived.wait()
    server.leave()
    await serving
    (request,) = receiver.requests
    assert request.line == "POST /hook?token=s3cret HTTP/1.1"
    body = json.loads(request.body)
    assert body.pop("at").endswith("Z")
    assert body == {
        "type": "dead_letter.alert",
        "alerts": [{"task_type": "mail", "dead_letters": 2, "new": 2, "threshold": 2}],
        "more": 0,
    }


def test_the_webhook_of_alerts_is_under_the_guard_of_all_webhooks(receiver: HttpServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{receiver.port}/"
    call = _dead_letter_webhook(configured(tmp_path, DEAD_LETTER_WEBHOOK=url, WEBHOOK_ALLOW_HTTP="true"))
    assert call is not None
    with pytest.raises(Reject, match="loopback address"):
        call(DeadLetterNotice(at="", alerts=[]))
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://hooks.example/s3cret", "webhook_allow_http"),
        ("hooks.example/s3cret", "has the scheme ''"),
        ("https://user:s3cret@hooks.example", "user name or password"),
    ],
)
def test_a_webhook_that_could_never_be_called_is_refused_at_the_start(url: str, reason: str, tmp_path: Path) -> None:
    configuration = configured(tmp_path, DEAD_LETTER_WEBHOOK=url)
    with pytest.raises(InvalidSettings, match=f"dead_letter_webhook cannot be used: .*{reason}") as refusal:
        _dead_letter_webhook(configuration)
    assert "s3cret" not in str(refusal.value)
    assert "s3cret" not in repr(configuration)


@pytest.mark.parametrize("written", ["images", "images:", ":3", "images:0", "images:many"])
def test_a_threshold_of_a_queue_that_is_none_is_refused(written: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"dead_letter_queue_alerts cannot be .*; use a queue and a number"):
        configured(tmp_path, DEAD_LETTER_QUEUE_ALERTS=written).queue_alerts()
