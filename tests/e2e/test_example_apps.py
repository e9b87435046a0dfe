"""The two example applications, run as their users run them: on a store, and over HTTP."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples import mailer, shop
from fairlead import TaskFailed
from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import PATIENCE, ROOT, eventually
from tests.servers.stores import empty_place, redis

__all__ = ["redis"]

pytestmark = pytest.mark.slow

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "redis", "http"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where tasks are: a store, or a server in front of one."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    if request.param != "http":
        yield empty_place(request, tmp_path).url
        return
    server = ServerProcess(tmp_path, f"sqlite:///{tmp_path}/tasks.db")
    try:
        yield server.url
    finally:
        server.end()


@contextmanager
def worker(place: str, store: str, folder: Path, **environment: str) -> Iterator[Path]:
    """`fairlead worker`, which is asked to leave at the end; its log."""
    log = folder / "worker.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairlead", "worker", place, "--store", store, "--log-format", "json"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT / "examples"), **environment},
            stdin=subprocess.DEVNULL,
            stderr=file,
        )
    try:
        yield log
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0, log.read_text()


async def test_the_shop_bills_what_is_ordered(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = f"sqlite+aiosqlite:///{tmp_path}/shop.db"
    monkeypatch.setenv("SHOP_DATABASE", database)
    shop.tasks.rebind(store)
    cart = {"customer": "Ada", "items": [{"name": "tea", "price": "1.50", "count": 2}, {"name": "cup", "price": "4"}]}
    transport = httpx.ASGITransport(app=shop.web)
    async with (
        shop.web.router.lifespan_context(shop.web),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as browser,
    ):
        with worker("shop:tasks", store, tmp_path):
            ordered = (await browser.post("/orders", params={"at": "2026-01-01T00:00:00Z"}, json=cart)).json()
            assert await shop.bill.handle(ordered["task"]).result(PATIENCE) == shop.Receipt(
                order=ordered["order"], total=Decimal(7), billed_at=NEW_YEAR
            )
            receipt = (await browser.get(f"/receipts/{ordered['task']}")).json()
            assert receipt == {"order": 1, "total": "7.00", "billed_at": "2026-01-01T00:00:00Z"}
            assert [row[1:] for row in (await browser.get("/orders")).json()] == [["Ada", "7.0000000000"]]
            lost = await shop.bill.submit(99, shop.Cart.model_validate(cart), at=NEW_YEAR)
            with pytest.raises(TaskFailed, match="there is no order 99"):
                await lost.result(PATIENCE)
        assert (await browser.post("/orders", params={"at": "x"}, json=cart)).status_code == 422
        assert (await browser.get("/receipts/nonsense")).status_code == 404


class Sentries:
    """A server that takes what is sent to Sentry."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        events = self.events

        class Taken(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                _, *items = body.splitlines()
                for header, item in zip(items[::2], items[1::2], strict=False):
                    if json.loads(header).get("type") == "event":
                        events.append(json.loads(item))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taken)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_address[1]}/1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_the_mailer_reports_what_it_could_not_send(store: str, tmp_path: Path) -> None:
    outbox = tmp_path / "out"
    outbox.mkdir()
    sentries = Sentries()
    mailer.app.rebind(store)
    try:
        with worker("mailer:app", store, tmp_path, OUTBOX=str(outbox), SENTRY_DSN=sentries.dsn) as log:
            sent = mailer.send.submit_sync(mailer.Mail("ada@example.org", "hello"))
            bad = mailer.send.submit_sync(mailer.Mail("nobody", "hello"))
            news = mailer.newsletter.submit_sync(["ada@example.org", "grace@example.org"])
            assert sent.result_sync(PATIENCE) == outbox / f"{sent.id}.json"
            assert news.result_sync(PATIENCE) == 2
            with pytest.raises(TaskFailed, match="nobody is no address"):
                bad.result_sync(PATIENCE)
            eventually(lambda: len(sentries.events) == 1, "the event")
        (event,) = sentries.events
    finally:
        sentries.close()
        mailer.app.connection().close_inline()
    assert event["contexts"]["task"]["task_id"] == bad.id
    assert event["exception"]["values"][0]["type"] == "Reject"
    assert len(list(outbox.iterdir())) == 3
    (failed,) = [line for line in map(json.loads, log.read_text().splitlines()) if line.get("traceback")]
    assert (failed["task_id"], failed["level"], failed["message"]) == (bad.id, "error", "task failed")


def test_the_examples_can_be_rehearsed_with_fakes(tmp_path: Path) -> None:
    box = mailer.Outbox(tmp_path)
    with mailer.app.testing(overrides={mailer.outbox: lambda: box}) as rehearsal:
        rehearsal.travel_sync(86_400)
        assert len(list(tmp_path.iterdir())) == 1
