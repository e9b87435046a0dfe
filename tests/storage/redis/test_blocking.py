"""The blocking transport: an answer is looked for before it is waited for, and that makes no other difference."""

from __future__ import annotations

import threading

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.redis.client import synchronous
from fairlead.storage.redis.store import open_redis
from fairlead.storage.values import Added
from fairlead.testing.builders import NOW, a_task
from tests.servers.redis import RedisServer, until

NEVER, ALWAYS = 0.0, 60.0


@pytest.fixture(params=[NEVER, ALWAYS], ids=["waited for", "looked for"])
def near(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    seconds: float = request.param
    monkeypatch.setattr(synchronous, "_NEAR", seconds)
    return seconds


@pytest.mark.usefixtures("near")
def test_an_answer_that_comes_in_pieces_is_read_to_its_end(server: RedisServer) -> None:
    store = run_inline(open_redis(server.url(), blocking=True))
    tasks = [a_task(parameters=b'{"text":"%s"}' % (letter * 500_000)) for letter in (b"a", b"b")]
    for task in tasks:
        assert run_inline(store.add([task], now=NOW, bounds={})) == [Added()]
    for _ in range(3):
        assert run_inline(store.get([task.id for task in tasks])) == tasks
    run_inline(store.close())


@pytest.mark.usefixtures("near")
def test_a_server_that_goes_meanwhile_is_missed(server: RedisServer) -> None:
    store = run_inline(open_redis(server.url(), blocking=True))
    assert run_inline(store.add([a_task(queue="other")], now=NOW, bounds={})) == [Added()]

    def halt() -> None:
        until(lambda: b"blocked_clients:1" in server.ask("INFO", "clients"), "the wait")
        server.halt()

    halting = threading.Thread(target=halt)
    halting.start()
    with pytest.raises(StoreUnavailable):
        run_inline(store.wait(["default"], 30))
    halting.join()
    run_inline(store.close())
