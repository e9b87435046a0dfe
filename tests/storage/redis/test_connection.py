"""How a store gets to its servers: through a socket, and with credentials that change while it runs."""

from __future__ import annotations

import asyncio
import shlex
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from fairlead.core.errors import StoreRefused, StoreUnavailable
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from fairlead.storage.redis.client.calls import Call
from fairlead.storage.redis.store import open_redis
from fairlead.testing.builders import a_task
from fairlead.testing.steps import add, contents
from tests.servers.redis import RedisServer, Watched

both = pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "blocking"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer("--unixsocket", str(tmp_path / "redis.sock"))
    try:
        yield server.start()
    finally:
        server.stop()


@both
async def test_a_server_is_reached_by_its_address_of_the_sixth_version(blocking: bool) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    server = RedisServer("--bind", "127.0.0.1", "::1")
    try:
        server.start()
        store = await open_store(f"redis://[::1]:{server.port}", blocking=blocking)
        await add(store, a_task())
        await store.close()
    finally:
        server.stop()


class Vault:
    """Gives a user and a password that it was told, and counts how often it was asked."""

    def __init__(self, server: RedisServer, user: str = "app") -> None:
        self._server = server
        self.user = user
        self.asked = 0
        self.stale: list[str] = []
        """What it gives first, though it holds no more."""
        self.password = ""
        self.change("first")

    def change(self, password: str) -> None:
        """Let the user in with this password alone, and hang up on it."""
        self.password = password
        self._server.ask("ACL", "SETUSER", self.user, "on", "resetpass", f">{password}", "~*", "&*", "+@all")
        self._server.ask("ACL", "SETUSER", "default", "resetpass")
        self.hang_up()

    def hang_up(self) -> None:
        self._server.ask("CLIENT", "KILL", "USER", self.user)

    def __call__(self) -> tuple[str, str]:
        self.asked += 1
        return self.user, self.stale.pop(0) if self.stale else self.password


async def persistent(store: Store) -> list[object]:
    """What is in a store whose server has hung up: what was asked of it in that moment is asked once more."""
    try:
        return list(await contents(store))
    except StoreUnavailable:
        return list(await contents(store))


@both
async def test_a_server_is_reached_through_its_socket(server: RedisServer, tmp_path: Path, blocking: bool) -> None:
    store = await open_store(f"unix://{tmp_path}/redis.sock?db=3", blocking=blocking)
    task = a_task()
    await add(store, task)
    assert await contents(store) == [task]
    server.halt()
    with pytest.raises(StoreUnavailable, match=rf"Redis at {tmp_path}/redis\.sock"):
        await store.tally()
    server.start()
    await add(store, task)
    await store.close()
    assert server.ask("INFO", "keyspace").count(b"db3:") == 1


@both
async def test_credentials_are_asked_for_at_each_new_connection_and_no_other_time(
    server: RedisServer, blocking: bool
) -> None:
    vault = Vault(server)
    store = await open_redis(server.url(), blocking=blocking, credentials=vault)
    asked = vault.asked
    for _ in range(10):
        await store.tally()
    assert vault.asked == asked
    vault.change("second")
    assert await persistent(store) == []
    assert vault.asked == asked + 1
    await store.close()


@both
async def test_credentials_that_are_refused_are_asked_for_once_more(server: RedisServer, blocking: bool) -> None:
    vault = Vault(server)
    store = await open_redis(server.url(), blocking=blocking, credentials=vault)
    vault.stale = ["first"]
    asked = vault.asked
    vault.change("second")
    assert await persistent(store) == []
    assert vault.asked == asked + 2
    vault.change("third")
    vault.stale = ["first", "second"]
    with pytest.raises(StoreRefused, match="what gives the credentials") as refused:
        await persistent(store)
    assert "second" not in str(refused.value)
    assert await persistent(store) == []
    await store.close()


@both
async def test_a_connection_that_is_nobodys_any_more_is_replaced(server: RedisServer, blocking: bool) -> None:
    vault = Vault(server)
    store = await open_redis(server.url(), blocking=blocking, credentials=vault)
    asked = vault.asked
    client, key = store._client, b"{fl}"
    # The server forgets who it talks to, and goes on talking.
    assert await client.run_one(Call(key, ("RESET",))) == b"RESET"
    task = a_task()
    await add(store, task)
    assert await contents(store) == [task]
    assert vault.asked == asked + 1
    await client.run_one(Call(key, ("RESET",)))
    vault.stale = ["wrong", "worse"]
    with pytest.raises(StoreRefused):
        await contents(store)
    assert await contents(store) == [task]
    await store.close()


@both
async def test_a_wait_on_a_connection_that_is_nobodys_any_more_fails_once(server: RedisServer, blocking: bool) -> None:
    vault = Vault(server)
    store = await open_redis(server.url(), blocking=blocking, credentials=vault)
    await store.wait(["default"], 0.01)
    (reply,) = await store._client.wait([Call(b"{fl}", ("RESET",))], 1.0)
    assert reply == b"RESET"
    with pytest.raises(StoreRefused):
        await store.wait(["default"], 0.01)
    await store.wait(["default"], 0.01)
    await store.close()


@both
async def test_a_command_gives_a_password_or_a_user_and_a_password(
    server: RedisServer, tmp_path: Path, blocking: bool
) -> None:
    vault = Vault(server)
    token = tmp_path / "token"
    command = f"cat {shlex.quote(str(token))}"
    url = f"redis://app@127.0.0.1:{server.port}?timeout=60&credentials_command={quote(command)}"
    token.write_text("first\n")
    store = await open_store(url, blocking=blocking)
    vault.change("second")
    token.write_text('{"username": "app", "password": "second", "Expires": 900}\n')
    assert await persistent(store) == []
    await store.close()


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("print('hunter2'); raise SystemExit(3)", "ended with 3 and gave no credentials"),
        ("print('hunter2'); print('hunter3')", "printed 2 lines"),
        ("pass", "printed 0 lines"),
        ("import sys; sys.stdout.buffer.write(b'hunter\\xff')", "printed what is not UTF-8"),
        (None, "cannot be run: No such file or directory"),
    ],
)
@both
async def test_a_command_that_gives_none_is_trouble_that_may_pass(
    server: RedisServer, program: str | None, says: str, blocking: bool
) -> None:
    command = "/nowhere/at/all" if program is None else shlex.join([sys.executable, "-S", "-c", program])
    with pytest.raises(StoreUnavailable, match=says) as raised:
        await open_store(server.url(timeout=60, credentials_command=quote(command, safe="")), blocking=blocking)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("given", ["", b"hunter2", ("hunter2",), ("", "hunter2"), ("a", "hunter2", "c"), None])
@both
async def test_a_function_that_gives_none_is_trouble_that_may_pass(
    server: RedisServer, given: object, blocking: bool
) -> None:
    with pytest.raises(StoreUnavailable, match="neither a password nor a user name and a password") as raised:
        await open_store(server.url(), blocking=blocking, credentials=lambda: given)  # type: ignore[arg-type,return-value]
    assert "hunter" not in str(raised.value)


@both
async def test_a_function_that_raises_is_trouble_that_may_pass(server: RedisServer, blocking: bool) -> None:
    def fail() -> str:
        raise RuntimeError("hunter2")

    place = rf"raised RuntimeError \(.*test_connection\.py, line {fail.__code__.co_firstlineno + 1}\)"
    with pytest.raises(StoreUnavailable, match=place) as raised:
        await open_store(server.url(), blocking=blocking, credentials=fail)
    assert "hunter" not in "".join(traceback.format_exception(raised.value)).replace('RuntimeError("hunter2")', "")


async def test_an_event_loop_goes_on_while_credentials_are_asked_for(server: RedisServer) -> None:
    """The function waits for what only the loop can do."""
    turned = threading.Event()
    vault = Vault(server)

    def ask() -> tuple[str, str]:
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(60)
        return vault()

    loop = asyncio.get_running_loop()
    store = await open_store(server.url(timeout=90), credentials=ask)
    await store.close()


async def test_a_function_that_hangs_costs_a_call_no_more_than_its_time(server: RedisServer) -> None:
    over = threading.Event()

    def hang() -> str:
        over.wait()
        return "too late"

    with pytest.raises(StoreUnavailable, match="no credentials were given within"):
        await open_store(server.url(timeout=0.1), credentials=hang)
    over.set()


async def test_handlers_that_hold_all_threads_of_the_loop_are_in_nobodys_way(server: RedisServer) -> None:
    over = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    held = loop.run_in_executor(None, over.wait)
    store = await open_store(server.url(timeout=60), credentials=Vault(server))
    over.set()
    await held
    await store.close()


@both
async def test_sentinels_that_know_users_are_asked_as_one(blocking: bool) -> None:
    watched = Watched()
    try:
        watched.start()
        for sentinel in watched.sentinels:
            sentinel.ask("ACL", "SETUSER", "watcher", "on", ">sesame", "+@all")
            sentinel.ask("ACL", "SETUSER", "default", "resetpass")
        vault = Vault(watched.master())
        for options in ({}, {"sentinel_password": "sesame"}, {"sentinel_username": "watcher"}):
            with pytest.raises(StoreRefused, match="does not let us in"):
                await open_store(watched.url(**options), blocking=blocking, credentials=vault)
        url = watched.url(sentinel_username="watcher", sentinel_password="sesame")
        store = await open_store(url, blocking=blocking, credentials=vault)
        await add(store, a_task())
        await store.close()
    finally:
        watched.stop()
