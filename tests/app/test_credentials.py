"""Credentials of an app: a function in its code, or a command in its configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead, InvalidSettings
from fairlead.app.config import load
from fairlead.app.connection import Connection
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.storage.credentials import with_command
from fairlead.worker.keeper.keeper import ProcessKeeper, ThreadKeeper
from tests.app import vault
from tests.servers.redis import RedisServer, started_single

SETTINGS = Settings(lease=2 * SECOND, heartbeat=SECOND, grace=SECOND)
"""Leases so short that a keeper opens its store at once."""


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server that lets in only whom the vault knows."""
    for server in started_single():
        let_in(server, tmp_path, monkeypatch)
        yield server.url()


def let_in(server: RedisServer, folder: Path, environment: pytest.MonkeyPatch) -> None:
    (folder / "password").write_text("sesame")
    environment.setenv(vault.FILE, str(folder / "password"))
    server.ask("ACL", "SETUSER", "app", "on", ">sesame", "~*", "&*", "+@all")
    server.ask("ACL", "SETUSER", "default", "resetpass")


def double(number: int) -> int:
    return number * 2


async def test_an_app_its_worker_and_its_keeper_ask_the_same_function(guarded: str) -> None:
    app = Fairlead(guarded, settings=SETTINGS, credentials=vault.give)
    task = app.task(double)
    handle = await task.submit(number=21)
    worker = await app.worker(keeper_process=True)
    running = asyncio.create_task(worker.run())
    try:
        assert await handle.result(timeout=60) == 42
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await app.close()


async def test_a_keeper_of_its_own_process_finds_the_function_by_its_name(guarded: str) -> None:
    keeper = Connection(guarded, SETTINGS, credentials=vault.give).keeper(process=True)
    assert isinstance(keeper, ProcessKeeper)
    await keeper.start(lambda task_id, pulse: None, lambda failed: None)
    try:
        async with asyncio.timeout(60):
            await keeper.ready()
    finally:
        await keeper.close()


def test_a_function_without_a_name_is_asked_by_a_thread(guarded: str, caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection(guarded, SETTINGS, credentials=lambda: vault.give())
    with caplog.at_level(logging.WARNING, "fairlead.worker"):
        assert isinstance(connection.keeper(process=True), ThreadKeeper)
    assert "a thread keeps the leases and not a process" in caplog.text
    connection.close_inline()


def test_synchronous_code_asks_it_too(guarded: str) -> None:
    app = Fairlead(guarded, credentials=vault.give)
    app.task(double).submit_sync(number=1)
    app.connection().close_inline()


async def asynchronous() -> str:
    return "sesame"


class Asynchronous:
    async def __call__(self) -> str:
        return "sesame"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"store": "redis://h", "credentials": "hunter2"}, "credentials cannot be called"),
        ({"store": "redis://h", "credentials": asynchronous}, "is a coroutine function"),
        ({"store": "redis://h", "credentials": Asynchronous()}, "is a coroutine function"),
        ({"store": "sqlite:///tasks.db", "credentials": vault.give}, "asks for no credentials"),
        ({"store": "https://h", "credentials": vault.give}, "takes no credentials except an api_key"),
        ({"store": "redis://h", "journal_credentials": vault.give}, "there is no journal"),
        (
            {"store": "redis://h", "journal": "postgresql://h", "journal_credentials": 3},
            "journal_credentials cannot be",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidSettings, match=says) as refused:
        Fairlead(**arguments)
    assert "hunter2" not in str(refused.value)


def test_another_store_without_use_for_them_is_put_to_use_without_them(tmp_path: Path) -> None:
    app = Fairlead("redis://h", credentials=vault.give)
    app.rebind(f"sqlite:///{tmp_path}/tasks.db")
    app.task(double).submit_sync(number=1)
    app.connection().close_inline()


def test_a_command_comes_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_CREDENTIALS_COMMAND", "give --it now&here")
    monkeypatch.setenv("FAIRLEAD_JOURNAL_CREDENTIALS_COMMAND", "give that")
    monkeypatch.setenv("FAIRLEAD_JOURNAL", "postgresql://h/app?pool=2")
    given = "credentials_command=give%20--it%20now%26here"
    configuration = load()
    assert configuration.store_url == configuration.store, "an embedded store asks nobody"
    assert configuration.journal_url == "postgresql://h/app?pool=2&credentials_command=give%20that"
    app = Fairlead("redis://h")
    assert (app.store, app.journal) == (f"redis://h?{given}", configuration.journal_url)
    assert Fairlead("redis://h", journal="postgresql://h").journal == "postgresql://h?credentials_command=give%20that"
    assert Fairlead("postgresql://h").store == f"postgresql://h?{given}"
    # What stands in the code is nearer.
    assert Fairlead("redis://h", credentials=vault.give).store == "redis://h"
    assert Fairlead("redis://h?credentials_command=mine").store == "redis://h?credentials_command=mine"


def test_a_command_is_said_to_servers_that_may_ask_for_it() -> None:
    for url in ("sqlite:///tasks.db", "memory://", "https://host"):
        assert with_command(url, "give") == url
    assert with_command("unix:///run/redis.sock?db=1", "a b") == "unix:///run/redis.sock?db=1&credentials_command=a%20b"
    assert with_command("postgresql://me:pass?word@h", "a") == "postgresql://me:pass?word@h?credentials_command=a"
