"""`fairlead top`: on every store, on a real terminal, and through all that can happen to both."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.app.connection import Connection
from fairlead.core.events import Failed
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Settings
from fairlead.core.task import Failure
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import PATIENCE, Folder, until
from tests.cli.terminals import GIVEN_BACK, Terminal
from tests.servers import postgres, redis

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")


@pytest.fixture(scope="module")
def redis_server() -> Iterator[redis.RedisServer]:
    yield from redis.started_single()


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    yield from postgres.started()


@pytest.fixture(params=["sqlite", "redis", "postgresql", "journal"])
def store(request: pytest.FixtureRequest, folder: Folder) -> tuple[str, ...]:
    """The options for an empty store of each kind that more than one process can reach."""
    kind: str = request.param
    if kind == "sqlite":
        return ("--store", f"sqlite:///{folder.path / 'tasks.db'}")
    options: tuple[str, ...] = ()
    if kind in ("postgresql", "journal"):
        server: postgres.PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.copy_of_template())
        options = ("--journal", url) if kind == "journal" else ("--store", url)
    if kind in ("redis", "journal"):
        cache: redis.RedisServer = request.getfixturevalue("redis_server")
        cache.ask("FLUSHALL")
        options = ("--store", cache.url(), *options)
    return options


def use(engine: AdminEngine) -> None:
    """A worker with one task that runs, one that failed, and two that wait."""
    node = WorkerId("node-1")
    run_inline(engine.worker_records.register(node, queues=["mail"], capacity=4))
    for task in run_inline(engine.claim(node, ["mail"], limit=2))[:1]:
        failure = Failure(type="Boom", message="it went boom")
        run_inline(engine.settle([Settlement(task, Failed(failure=failure, retriable=False))]))


def test_once_shows_everything_on_every_store_and_through_a_server(store: tuple[str, ...], folder: Folder) -> None:
    for priority in ("critical", "high", "high", "low"):
        folder.submit("send_mail", "--queue", "mail", "--priority", priority, *store)
    connection = Connection(store[1], Settings(), journal=store[3] if len(store) > 2 else None)
    use(connection.inline())
    connection.close_inline()
    with folder.start("serve", "--port", "0", "--json", *store) as server:
        url = json.loads(server.find('"url"')[0])["url"]
        # A journal learns of changes a little later, from the server.
        until(lambda: len(folder.quick("list", "--state", "executing,failed", *store).out.splitlines()) == 3)
        for way in (store, ("--store", url)):
            shown = folder.quick("top", "--once", *way)
            assert shown.code == 0, shown
            for expected in (
                r"2 queued  1 executing  1 failed",
                r"mail +0 +1 +0 +1 +\d+m?s +1",
                r"node-1 +active +0/4",
                r"send_mail +mail +node-1 +[0-9a-f]{32}",
                r"send_mail +[0-9a-f]{32} +Boom: it went boom",
            ):
                assert re.search(expected, shown.out), (expected, shown.out)
            said = folder.quick("top", "--once", "--json", *way).json
            assert said["stats"]["queues"]["high"]["depth"] == 1
            assert [worker["worker_id"] for worker in said["workers"]] == ["node-1"]
            assert [task["status"] for task in said["running_longest"]] == ["executing"]
            assert [task["error"]["message"] for task in said["newest_errors"]] == ["it went boom"]
        server.send(signal.SIGTERM)
        assert server.wait() == 0


def test_what_it_cannot_do_is_said_with_what_to_do_instead(folder: Folder) -> None:
    folder.submit("echo")
    for arguments, error in (
        (("top",), "top needs a terminal to draw on and to read keys from; use --once elsewhere"),
        (("top", "--once", "--interval", "0"), "--interval 0 is out of range; use 0.1 to 3600 seconds"),
        (("top", "--once", "--interval", "nan"), "--interval nan is out of range; use 0.1 to 3600 seconds"),
    ):
        ended = folder.run(*arguments)
        assert (ended.code, ended.error) == (2, error)
    refused = folder.run("top", "--json")
    assert refused.code == 2 and "--once" in json.loads(refused.err)["error"]
    with Terminal(folder, command=["env", "TERM=dumb", sys.executable, "-m", "fairlead", "top"]) as terminal:
        assert terminal.wait() == 2
        assert "use --once" in terminal.written
    assert folder.run("top", "--once", "--store", "sqlite:///nowhere.db").code == 1


def test_it_shows_what_changes_fits_whatever_size_the_terminal_has_and_quits_with_q(folder: Folder) -> None:
    folder.submit("echo", "--queue", "mail")
    with Terminal(folder, "top", "--interval", "0.1") as terminal:
        assert terminal.see("mail  ").split()[:5] == ["mail", "0", "0", "1", "0"]
        assert terminal.see("fairlead top").startswith("fairlead top q quits")
        folder.submit("echo", "--queue", "images", "--priority", "critical")
        assert terminal.see("images  ").split()[:5] == ["images", "1", "0", "0", "0"]
        terminal.resize(44, 9)
        terminal.until(lambda: len(terminal.frame) <= 9 and max(map(len, terminal.frame)) <= 44, "a small picture")
        terminal.resize(120, 40)
        terminal.until(lambda: any("RUNNING" in line for line in terminal.frame), "a large picture")
        terminal.type("xq")
        assert terminal.wait() == 0
        # Nothing but the frames is written, and none of them clears what it is drawn over.
        assert "\x1b[2J" not in terminal.written and "Traceback" not in terminal.written


@pytest.mark.parametrize(
    ("keys", "number", "code"), [("\x03", None, 130), ("", signal.SIGTERM, 0), ("", signal.SIGHUP, 0)]
)
def test_the_terminal_is_given_back_whoever_ends_it(
    folder: Folder, keys: str, number: signal.Signals | None, code: int
) -> None:
    folder.submit("echo")
    with Terminal(folder, "top", "--interval", "0.1") as terminal:
        terminal.see("default")
        if number is None:
            terminal.type(keys)
        else:
            terminal.send(number)
        assert terminal.wait() == code
        assert "Traceback" not in terminal.written


def test_the_terminal_is_given_back_after_an_error(folder: Folder) -> None:
    program = "from fairlead.cli.terminal import Screen\nwith Screen():\n    raise RuntimeError('oops')\n"
    with Terminal(folder, command=[sys.executable, "-c", program]) as terminal:
        assert terminal.wait() == 1
        terminal.until(lambda: "RuntimeError: oops" in terminal.written.partition(GIVEN_BACK)[2], "the error")


def test_a_terminal_that_is_gone_ends_it(folder: Folder) -> None:
    folder.submit("echo")
    with Terminal(folder, "top", "--interval", "0.1") as terminal:
        terminal.see("default")
        terminal.hang_up()
        assert terminal.ended() == 0


def test_stopped_by_ctrl_z_it_gives_the_terminal_back_until_it_goes_on(folder: Folder) -> None:
    folder.submit("echo")
    with Terminal(folder, "top", "--interval", "0.1") as terminal:
        terminal.see("default")
        terminal.type("\x1a")
        _, status = os.waitpid(terminal.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        terminal.check_given_back()
        folder.submit("echo", "--queue", "later")
        terminal.send(signal.SIGCONT)
        terminal.see("later")
        terminal.type("q")
        assert terminal.wait() == 0


def test_colours_are_there_unless_they_are_not_wanted(folder: Folder) -> None:
    folder.submit("echo", "--priority", "critical")
    for wanted in (True, False):
        if wanted:
            folder.environment.pop("NO_COLOR", None)
        else:
            folder.environment["NO_COLOR"] = "1"
        with Terminal(folder, "top") as terminal:
            terminal.see("default")
            terminal.type("q")
            assert terminal.wait() == 0
            assert bool(COLOUR.search(terminal.written)) is wanted


def lose_and_find(folder: Folder, url: str, lose: Callable[[], object], find: Callable[[], object]) -> None:
    folder.submit("echo", "--queue", "before", "--store", url)
    with Terminal(folder, "top", "--interval", "0.1", "--store", url) as terminal:
        terminal.see("before")
        lose()
        terminal.see("out of reach since")
        assert terminal.see("before")
        find()
        folder.submit("echo", "--queue", "after", "--store", url)
        terminal.see("after")
        terminal.see("reached again at")
        terminal.type("q")
        assert terminal.wait() == 0


def test_redis_being_lost_and_coming_back_is_shown(folder: Folder, redis_server: redis.RedisServer) -> None:
    redis_server.ask("FLUSHALL")
    lose_and_find(folder, redis_server.url(), redis_server.halt, redis_server.start)


def test_postgresql_being_lost_and_coming_back_is_shown(
    folder: Folder, postgres_server: postgres.PostgresServer
) -> None:
    url = postgres_server.url(postgres_server.copy_of_template())
    lose_and_find(folder, url, postgres_server.halt, postgres_server.launch)


def test_q_quits_at_once_while_the_store_hangs(folder: Folder, redis_server: redis.RedisServer) -> None:
    store = ("--store", redis_server.url(timeout=PATIENCE * 10))
    folder.submit("echo", *store)
    with Terminal(folder, "top", "--interval", "0.1", *store) as terminal:
        terminal.see("default")
        redis_server.pause()
        try:
            terminal.see("no answer for")
            terminal.type("q")
            assert terminal.wait() == 0
        finally:
            redis_server.resume()
