"""`fairlead doctor`: what a person and a script see, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from fairlead.core.identity import WorkerId
from fairlead.core.task import State, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.testing.builders import a_task
from tests.cli.running import Folder
from tests.cli.test_terminal import ESCAPE, on_terminal
from tests.servers.redis import started_single


def test_a_healthy_store_is_not_red(folder: Folder) -> None:
    folder.submit("echo", "--delay", "3600")
    ended = folder.quick("doctor")
    assert ended.code == 0
    assert (
        "green   durability   SQLite, synchronous=FULL (default); survives kill -9: yes; power loss: yes\n" in ended.out
    )
    shown = folder.quick("doctor", "--json").json
    assert shown["tier"]["name"] == "SQLite, `synchronous=FULL` (default)"
    assert {"clock", "fairlead", "integrity", "sweep", "schedules"} <= {each["what"] for each in shown["findings"]}
    assert shown["level"] in ("green", "yellow")


def test_what_is_red_has_a_remedy_and_the_exit_code_one(folder: Folder) -> None:
    folder.submit("echo")
    engine = folder.engine()
    long_ago = engine.clock.now() - 10**10
    task = a_task(state=State.SCHEDULED, ready_at=long_ago)
    run_inline(engine.store.add([Task(task.spec, replace(task.status, alarm=long_ago))], now=long_ago, bounds={}))

    ended = folder.run("doctor")

    assert ended.code == 1
    assert "red     sweep" in ended.out
    assert "→ start a worker or a server on this store" in ended.out
    assert folder.quick("doctor", "--json").json["level"] == "red"


def test_a_person_sees_colours(folder: Folder) -> None:
    folder.submit("echo")
    run_inline(folder.engine().worker_records.register(WorkerId("w"), queues=["default"], capacity=1))
    shown = on_terminal(folder, "doctor")
    assert "\x1b[32mgreen" in shown
    assert "green   workers" in ESCAPE.sub("", shown)


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("sqlite:///nowhere.db", "does not exist"),
        ("bad://x", "unknown scheme 'bad'"),
        ("memory://", "lives inside one process"),
        ("redis://127.0.0.1:1?timeout=0.2", "cannot be reached"),
        ("postgresql://127.0.0.1:1/x", "Connection refused"),
        ("http://127.0.0.1:1", "does not answer"),
    ],
)
def test_a_store_that_cannot_be_reached_is_a_red_finding(folder: Folder, store: str, said: str) -> None:
    ended = folder.quick("doctor", "--store", store, "--json")
    assert (ended.code, ended.err) == (1, "")
    (finding,) = ended.json["findings"]
    assert (finding["what"], finding["level"], ended.json["tier"]) == ("store", "red", None)
    assert said in finding["value"] and finding["remedy"]
    assert folder.quick("doctor", "--store", store).out.startswith("red     store  ")
    assert not list(Path(folder.path).glob("nowhere*"))


def test_a_wrong_configuration_is_a_red_finding(folder: Folder) -> None:
    folder.write("fairlead.toml", "sotre = 'x'\n")
    ended = folder.quick("doctor")
    assert ended.code == 1
    assert "sotre" in ended.out and "`fairlead config`" in ended.out


def test_what_redis_warns_of_when_it_is_opened_is_a_finding_and_nothing_else(folder: Folder) -> None:
    for server in started_single():
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        ended = folder.run("doctor", "--store", server.url())
        assert (ended.code, ended.err) == (1, "")
        assert "red     memory" in ended.out and "maxmemory-policy noeviction" in ended.out
        assert "red     durability" in ended.out
