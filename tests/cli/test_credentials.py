"""Commands and workers on a server whose password changes, and is said to nobody."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Folder
from tests.servers.redis import RedisServer, started_single


@pytest.fixture
def server() -> Iterator[RedisServer]:
    yield from started_single()


def change(server: RedisServer, file: Path, password: str) -> None:
    """Let the user in with this password alone, and hang up on it."""
    server.ask("ACL", "SETUSER", "app", "on", "resetpass", f">{password}", "~*", "&*", "+@all")
    server.ask("ACL", "SETUSER", "default", "resetpass")
    file.write_text(password)
    server.ask("CLIENT", "KILL", "USER", "app")


def test_a_password_changes_while_a_worker_runs(folder: Folder, server: RedisServer) -> None:
    token = folder.path / "token"
    folder.environment |= {
        "FAIRLEAD_STORE": f"redis://app@127.0.0.1:{server.port}?timeout=60",
        "FAIRLEAD_CREDENTIALS_COMMAND": f"cat '{token}'",
    }
    change(server, token, "hunter2")
    said = []
    # A lease so short that a keeper has a connection of its own from the beginning.
    flags = ("--lease-seconds", "5", "--heartbeat-seconds", "1", "--log-format", "text")
    with folder.start("worker", "builtin", *flags) as worker:
        worker.find("working on redis://")
        for password in ("hunter3", "hunter4"):
            change(server, token, password)
            ended = folder.ok("submit", "echo", f"message={password[-1]}", "--wait", "--json")
            assert ended.json["result"] == int(password[-1])
            said += [ended.out, ended.err]
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        said += worker.lines
    assert "hunter" not in json.dumps(said)


def test_a_password_that_is_refused_is_not_shown(folder: Folder, server: RedisServer) -> None:
    token = folder.path / "token"
    change(server, token, "sesame")
    token.write_text("hunter2")
    store = ("--store", f"redis://app@127.0.0.1:{server.port}")
    ended = folder.run("list", *store, FAIRLEAD_CREDENTIALS_COMMAND=f"cat '{token}'")
    assert ended.code == 1
    assert "does not let us in" in ended.error
    shown = folder.ok("config", *store, FAIRLEAD_CREDENTIALS_COMMAND=f"cat '{token}'")
    assert "hunter" not in ended.out + ended.err + shown.out + shown.err
