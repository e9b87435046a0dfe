"""The journal's PostgreSQL stops: servers go on with the keys that they know, for a time, and new ones admit nobody."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import ROOT, eventually
from tests.servers import postgres, redis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

STALE = 5.0
"""Seconds after which a server no longer uses keys without having asked its store again."""


@pytest.fixture
def own_postgres() -> Iterator[postgres.PostgresServer]:
    """A server that this test may stop."""
    yield from postgres.started()


@pytest.fixture
def empty_redis(redis_server: redis.RedisServer) -> Iterator[redis.RedisServer]:
    yield redis_server
    redis_server.ask("FLUSHALL")


class Place:
    """A store with a journal, and servers in front of it."""

    def __init__(self, store: str, journal: str, folder: Path) -> None:
        self.store, self.journal, self.folder = store, journal, folder
        self.servers: list[ServerProcess] = []

    def serve(self) -> ServerProcess:
        self.servers.append(ServerProcess(self.folder, self.store, journal=self.journal))
        return self.servers[-1]

    def key(self, *arguments: str) -> str:
        words = ["keys", "create", "someone", "--roles", "admin", "--json", *arguments]
        made = subprocess.run(
            [sys.executable, "-m", "fairlead", *words, "--store", self.store, "--journal", self.journal],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return str(json.loads(made.stdout)["key"])


@pytest.fixture(params=[600, 8])
def place(
    own_postgres: postgres.PostgresServer,
    empty_redis: redis.RedisServer,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Iterator[Place]:
    journal = own_postgres.url(own_postgres.create_database()) + f"?remember={request.param}"
    place = Place(empty_redis.url(), journal, tmp_path)
    yield place
    for server in place.servers:
        server.end()


def log_in(server: ServerProcess, key: str) -> str:
    """A cookie for the key."""
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    connection.request("POST", "/api/v1/session", json.dumps({"key": key}), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 201, response.read()
    connection.close()
    return str(response.headers["set-cookie"]).partition(";")[0]


def ask_with_cookie(server: ServerProcess, cookie: str, method: str = "GET", path: str = "/api/v1/queues") -> int:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    connection.request(method, path, headers={"cookie": cookie})
    status = connection.getresponse().status
    connection.close()
    return status


def ask(server: ServerProcess, key: str | None, path: str = "/api/v1/queues") -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    connection.request("GET", path, headers={} if key is None else {"authorization": f"Bearer {key}"})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


@pytest.mark.parametrize("place", [600], indirect=True)
@pytest.mark.parametrize("frozen", [False, True], ids=["stopped", "frozen"])
def test_a_server_goes_on_with_the_keys_it_knows(
    place: Place, own_postgres: postgres.PostgresServer, frozen: bool
) -> None:
    key = place.key()
    brief = place.key("--expires-at", "+15s")
    server = place.serve()
    cookie = log_in(server, key)
    assert (ask(server, key)[0], ask(server, brief)[0], ask(server, None)[0]) == (200, 200, 401)
    began = time.monotonic()
    (own_postgres.pause if frozen else own_postgres.halt)()
    try:
        while time.monotonic() - began < 2 * STALE:
            status, text = ask(server, key)
            assert status == 200, text
            assert ask(server, None)[0] == 401
            assert ask_with_cookie(server, cookie) == 200
        another = log_in(server, key)
        assert ask_with_cookie(server, another) == 200
        assert ask_with_cookie(server, another, "DELETE", "/api/v1/session") == 204
        assert (ask_with_cookie(server, another), ask_with_cookie(server, cookie)) == (401, 200)
        eventually(lambda: ask(server, brief)[0] == 401, "the expiry of a key")
        # The look at a journal that hangs takes its time, and who asks meanwhile may be told to ask again.
        eventually(lambda: ask(server, key, "/readyz")[0] == 200, "a server that is ready without its journal")
        if not frozen:
            fresh = place.serve()
            for shown in (key, None):
                status, text = ask(fresh, shown)
                assert (status, "the journal at" in text) == (503, True), text
    finally:
        (own_postgres.resume if frozen else own_postgres.launch)()
    eventually(lambda: {ask(each, key)[0] for each in place.servers} == {200}, "servers that have their journal again")


@pytest.mark.parametrize("place", [8], indirect=True)
def test_it_does_not_for_longer_than_is_stated(place: Place, own_postgres: postgres.PostgresServer) -> None:
    key = place.key()
    server = place.serve()
    assert ask(server, key)[0] == 200
    own_postgres.halt()
    assert ask(server, key)[0] == 200
    eventually(lambda: ask(server, key)[0] == 503, "the end of the stated time")
    own_postgres.launch()
    eventually(lambda: ask(server, key)[0] == 200, "a journal that is back")
