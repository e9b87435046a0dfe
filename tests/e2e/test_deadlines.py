"""A server hangs, frozen in the middle of its work: whoever calls is told in the time of one call, not of its tries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest

from fairlead.app.connection import Connection
from fairlead.core.errors import StoreUnavailable
from tests.e2e import fleet
from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import eventually
from tests.servers import postgres, redis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DOCUMENTED = 5.0
"""Seconds that a call takes at most, as docs/how-to/run-on-redis.md and run-on-postgresql.md say."""
ABOUT = 2.5
"""What a busy machine may add."""
TASK = {"task_type": "noop", "parameters": {}}


class Freezer(Protocol):
    def pause(self) -> None: ...
    def resume(self) -> None: ...


@pytest.fixture(params=["redis", "postgresql"])
def frozen(request: pytest.FixtureRequest) -> Iterator[tuple[Freezer, str]]:
    """A server of this test's own, and the store on it with all options at their defaults."""
    if request.param == "redis":
        server = redis.RedisServer()
        try:
            yield server.start(), server.url()
        finally:
            server.stop()
    else:
        for databases in postgres.started():
            yield databases, databases.url(databases.copy_of_template())


@pytest.fixture
def server(frozen: tuple[Freezer, str], tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, frozen[1])
    try:
        yield process
    finally:
        process.end()


def call(server: ServerProcess, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any], float]:
    """The status and the answer, and how long they took."""
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    began = time.monotonic()
    connection.request(method, path, None if body is None else json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer, time.monotonic() - began


def submit(server: ServerProcess) -> tuple[int, dict[str, Any], float]:
    return call(server, "POST", "/api/v1/tasks", TASK)


def lists(server: ServerProcess) -> tuple[int, dict[str, Any], float]:
    return call(server, "GET", "/api/v1/tasks")


def queues(server: ServerProcess) -> tuple[int, dict[str, Any], float]:
    return call(server, "GET", "/api/v1/queues")


CALLS: list[Callable[[ServerProcess], tuple[int, dict[str, Any], float]]] = [submit, lists, queues, submit]


def test_every_request_is_answered_in_the_documented_time(frozen: tuple[Freezer, str], server: ServerProcess) -> None:
    freezer, _ = frozen
    assert submit(server)[0] == 201
    assert lists(server)[0] == 200
    freezer.pause()
    try:
        # Those that come together, and those that come behind them, when it is known that something is wrong.
        for _ in range(2):
            with ThreadPoolExecutor(8) as callers:
                answers = list(callers.map(lambda ask: ask(server), CALLS * 2))
            for status, answer, took in answers:
                assert (status, answer["type"]) == (503, "/docs#store-unavailable"), answer
                assert took < DOCUMENTED + ABOUT, answer
    finally:
        freezer.resume()
    eventually(lambda: submit(server)[0] == 201, "a submit after the outage")
    status, answer, _ = lists(server)
    assert status == 200
    assert len(answer["tasks"]) >= 2


def test_a_synchronous_submit_ends_in_the_documented_time(frozen: tuple[Freezer, str]) -> None:
    freezer, url = frozen
    former = fleet.app._swap(Connection(url, fleet.SETTINGS))
    try:
        fleet.work.submit_sync(1)
        freezer.pause()
        try:
            for _ in range(2):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    fleet.work.submit_sync(2)
                assert time.monotonic() - began < DOCUMENTED + ABOUT
        finally:
            freezer.resume()
        assert fleet.work.submit_sync(3).refresh_sync().snapshot.spec.parameters == b'{"number":3}'
    finally:
        fleet.app.connection().close_inline()
        fleet.app._swap(former)
