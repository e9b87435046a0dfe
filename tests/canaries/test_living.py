"""A server and a worker run on a store and a journal that want passwords; then the store goes away.

All that they say, log, answer and export is collected, and none of the passwords may be in it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.canaries import CANARY
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.stores import postgres

__all__ = ["postgres"]

pytestmark = [pytest.mark.timeout(240)]

PATIENCE: Final = 90.0
APP: Final = """
import os
from fairlead import Fairlead, Reject

app = Fairlead(os.environ["FAIRLEAD_STORE"])

@app.task
async def leak(how: str) -> None:
    url = os.environ["FAIRLEAD_STORE"]
    try:
        raise OSError(f"cannot reach {url}")
    except OSError as error:
        if how == "reject":
            raise Reject(f"{url} refused {os.environ['FAIRLEAD_JOURNAL']!r}") from error
        raise RuntimeError(url, {"password": url}) from error
"""


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis that wants a password, and that the test may stop."""
    server = RedisServer().start()
    server.ask("CONFIG", "SET", "requirepass", f"{CANARY}1")
    yield server
    server.stop()


def until(reached: object, what: str) -> None:
    assert callable(reached)
    began = time.monotonic()
    while not reached():
        assert time.monotonic() - began < PATIENCE, f"waited in vain for {what}"
        time.sleep(0.05)


def test_nobody_tells_a_password(own_redis: RedisServer, postgres: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(APP)
    said = tmp_path / "said.log"
    database = postgres.url(postgres.create_database()).replace("postgresql://fairlead@", "postgresql://fairlead:C@")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")} | {
        "FAIRLEAD_STORE": f"redis://default:{CANARY}1@127.0.0.1:{own_redis.port}/0?timeout=0.5",
        "FAIRLEAD_JOURNAL": f"{database}{'&' if '?' in database else '?'}password={CANARY}2",
        "FAIRLEAD_SMTP_URL": f"smtp://u:{CANARY}3@127.0.0.1:1",
        "FAIRLEAD_LOG_LEVEL": "debug",
    }

    def started(name: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from tests.e2e.traced import run; run()", *words]
        paths = os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)])
        given = environment | {"PYTHONPATH": paths, "SPANS": str(tmp_path / f"{name}.spans")}
        with said.open("ab") as out:
            return subprocess.Popen(
                command, cwd=tmp_path, env=given, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )  # fmt: skip

    server = started("server", "serve", "--port", "0", "--json")
    worker = started("worker", "worker", "leaky:app")
    try:
        until(lambda: '"url":' in said.read_text(), "the server")
        (line,) = [each for each in said.read_text().splitlines() if '"url":' in each and each.startswith("{")]
        arguments = arguments_of(server.pid) + arguments_of(worker.pid)
        answers = ask_everything(json.loads(line)["url"], own_redis)
        for process in (server, worker):
            process.send_signal(signal.SIGTERM)
        for process in (server, worker):
            process.wait(PATIENCE)
    finally:
        for process in (server, worker):
            process.kill()
            process.wait(PATIENCE)
    told = said.read_text()
    assert "redis://default:***@127.0.0.1" in told + answers, "it is told of, masked"
    spans = "".join(file.read_text() for file in tmp_path.glob("*.spans"))
    assert "cannot reach redis://default:***@" in spans, "they were exported"
    for secret in ("1", "2", "3"):
        for where, text in {"log": told, "answers": answers, "spans": spans, "arguments": arguments}.items():
            assert f"{CANARY}{secret}".lower() not in text.lower(), (where, text)


def arguments_of(process: int) -> str:
    """The arguments of a process and of all that it has started: what every user of the host can see."""
    try:
        own = Path(f"/proc/{process}/cmdline").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except FileNotFoundError:
        return ""
    return own + "".join(arguments_of(int(child)) for child in children)


def ask_everything(url: str, store: RedisServer) -> str:
    """All that a server answers, with its store and without it."""
    with httpx.Client(base_url=url, timeout=60) as client:

        def submit(how: str, **options: object) -> httpx.Response:
            wish = {"task_type": "leak", "parameters": {"how": how}, **options}
            return client.post("/api/v1/tasks", json=wish)

        ids = [submit(how, max_retries=0).json()["task_id"] for how in ("reject", "raise")]
        tasks = [f"/api/v1/tasks/{each}" for each in ids]
        until(lambda: all(client.get(each).json()["status"] in _ENDED for each in tasks), "the end of the tasks")
        paths = [*PATHS, *tasks, *(f"{each}/explain" for each in tasks)]
        answers = [client.get(path).text for path in paths]
        store.halt()
        until(lambda: client.get("/readyz").status_code == 503, "a server without its store")
        answers += [
            client.get(path).text for path in ("/readyz", "/metrics", "/api/v1/doctor", "/api/v1/queues", *tasks)
        ]
        answers.append(submit("x").text)
    return "\n".join(answers)


_ENDED: Final = ("failed", "dead_letter")
PATHS: Final = (
    "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/api/v1/doctor", "/api/v1/queues", "/api/v1/workers",
    "/api/v1/tasks", "/api/v1/dlq", "/api/v1/dlq/groups", "/api/v1/queue/stats", "/api/v1/operations",
    "/api/v1/schedules", "/api/v1/circuits", "/api/v1/quarantine", "/api/v1/session",
)  # fmt: skip
