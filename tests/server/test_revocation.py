"""Who was let in and may not stay is told so within seconds: revoked means gone, for what lasts as well."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from fairlead.admin.engine import AdminEngine
from fairlead.admin.keys.service import Keyring
from fairlead.core.errors import StoreUnavailable
from fairlead.core.instant import SECOND
from fairlead.core.submission import Submission
from fairlead.core.task import State
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.clock import ManualClock
from fairlead.server.auth import gate
from fairlead.server.auth.credentials import FRESH
from fairlead.server.http.problems import Refusal
from fairlead.server.server import Server
from fairlead.server.settings import ServerSettings
from fairlead.storage.memory import MemoryStore
from tests.server.doors import Doors, websocket
from tests.server.probes import CHUNKED, HOST, LAST, request
from tests.server.test_server import running
from tests.server.test_wire import calling
from tests.worker.building import eventually

PATIENCE = 60.0


class House:
    """A server on a clock that the test moves, and its keys."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = AdminEngine(MemoryStore(), clock=self.clock)
        self.keyring = Keyring(self.engine)
        self.server: Server

    async def key(self, *roles: Role, **options: Any) -> dict[str, str]:
        made = await self.keyring.create(roles[0].value, roles, **options)
        return {"authorization": f"Bearer {made.text}"}

    async def revoke(self, role: Role) -> None:
        """Revoke the key of a role; what is known of keys is old by then."""
        await self.keyring.revoke(role)
        self.clock.advance(FRESH)


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(gate, "RECHECK", 0.02)
    house = House()
    async with running(house.engine, ServerSettings(rate_limit=0, session_seconds=60)) as house.server:
        yield house


class Listener:
    """Somebody who hears what happens, one way or the other."""

    def __init__(self, house: House, headers: Mapping[str, str]) -> None:
        self.ended = asyncio.create_task(self._listen(house, headers))
        self.heard = 0

    async def _listen(self, house: House, headers: Mapping[str, str]) -> str:
        """Why it ended."""
        raise NotImplementedError


class OverWebSocket(Listener):
    async def _listen(self, house: House, headers: Mapping[str, str]) -> str:
        url = house.server.url.replace("http", "ws")
        async with connect(f"{url}/ws", additional_headers=headers, proxy=None) as it:
            with contextlib.suppress(ConnectionClosed):
                while await it.recv():
                    self.heard += 1
            assert it.close_code == 1008
            return it.close_reason or ""


class AsStream(Listener):
    async def _listen(self, house: House, headers: Mapping[str, str]) -> str:
        said = ""
        url = f"{house.server.url}/api/v1/events"
        async with (
            httpx.AsyncClient(timeout=PATIENCE) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            async for line in response.aiter_lines():
                self.heard += line.startswith("event: ")
                said = line or said
        return said


BOTH = pytest.mark.parametrize("way", [OverWebSocket, AsStream])


async def hears(house: House, listener: Listener) -> None:
    """Wait until a listener has heard of something."""
    before = listener.heard

    def heard() -> bool:
        assert not listener.ended.done(), listener.ended
        return listener.heard > before

    while not heard():
        await house.engine.submit(Submission(type="mail"))
        with contextlib.suppress(AssertionError):
            await eventually(heard, "an event")


def test_it_takes_less_than_five_seconds() -> None:
    # A look that comes just before the revocation is read, and the next one.
    assert gate.RECHECK + FRESH / SECOND + gate.RECHECK <= 5


@BOTH
async def test_the_stream_of_a_revoked_key_ends_with_a_reason_and_others_go_on(
    house: House, way: type[Listener]
) -> None:
    revoked, other = way(house, await house.key(Role.READ)), way(house, await house.key(Role.ADMIN))
    await hears(house, revoked)
    await hears(house, other)
    await house.revoke(Role.READ)
    async with asyncio.timeout(PATIENCE):
        assert "was revoked" in await revoked.ended
    await hears(house, other)
    other.ended.cancel()


@BOTH
async def test_the_stream_of_an_expired_key_ends_with_a_reason(house: House, way: type[Listener]) -> None:
    listener = way(house, await house.key(Role.READ, expires=house.clock.now() + 60 * SECOND))
    await hears(house, listener)
    house.clock.advance(60 * SECOND)
    async with asyncio.timeout(PATIENCE):
        assert "has expired" in await listener.ended


@BOTH
@pytest.mark.parametrize("how", ["time", "key"])
async def test_the_stream_of_a_session_that_is_over_ends_with_a_reason(
    house: House, way: type[Listener], how: str
) -> None:
    key = await house.key(Role.READ)
    async with httpx.AsyncClient(base_url=house.server.url) as client:
        text = key["authorization"].removeprefix("Bearer ")
        cookie = (await client.post("/api/v1/session", json={"key": text})).headers["set-cookie"].partition(";")[0]
    listener = way(house, {"cookie": cookie, "origin": house.server.url})
    await hears(house, listener)
    if how == "time":
        house.clock.advance(61 * SECOND)
    else:
        await house.revoke(Role.READ)
    async with asyncio.timeout(PATIENCE):
        assert "the session has ended" in await listener.ended


@BOTH
async def test_the_first_key_ends_the_streams_of_those_who_have_none(house: House, way: type[Listener]) -> None:
    listener = way(house, {})
    await hears(house, listener)
    await house.key(Role.ADMIN)
    house.clock.advance(FRESH)
    async with asyncio.timeout(PATIENCE):
        assert "an API key is required" in await listener.ended


async def test_lines_of_a_revoked_key_are_not_taken_any_more(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "RECHECK", 0)
    key = (await house.key(Role.SUBMIT))["authorization"].encode()
    head = (HOST, b"authorization: " + key, b"content-type: application/x-ndjson", CHUNKED, LAST)
    async with calling(house.server) as caller:
        before = b'18\r\n{"task_type": "before"}\n\r\n'
        await caller.write(request(*head, start=b"POST /api/v1/tasks/batch HTTP/1.1", body=before))
        assert b'"status":201' in await caller.until(b"}}\n")
        await house.revoke(Role.SUBMIT)
        await caller.write(b'17\r\n{"task_type": "after"}\n\r\n')
        said = await caller.rest()
    assert b'"status":401' in said and b"was revoked" in said
    assert [task.spec.type for task in await house.engine.find()] == ["before"]


async def test_a_poll_of_a_revoked_key_gives_no_task(house: House) -> None:
    headers = await house.key(Role.WORK)
    async with httpx.AsyncClient(base_url=house.server.url, headers=headers, timeout=PATIENCE) as client:
        worker = (await client.post("/internal/workers/register", json={})).json()["worker_id"]
        poll = asyncio.create_task(client.post(f"/internal/workers/{worker}/poll", json={"wait_seconds": 50}))
        await eventually(lambda: house.server.state.dispatcher.waiting == 1, "the poll")
        await house.revoke(Role.WORK)
        house.clock.advance(SECOND)
        submitted = await house.engine.submit(Submission(type="mail"))
        assert (await poll).status_code == 401
    task = await house.engine.get(submitted.task.id)
    assert (task.state, task.status.retries) == (State.QUEUED, 0)


async def test_a_wait_of_a_revoked_key_tells_nothing(house: House) -> None:
    submitted = await house.engine.submit(Submission(type="mail"))
    headers = await house.key(Role.READ)
    async with httpx.AsyncClient(base_url=house.server.url, headers=headers, timeout=PATIENCE) as client:
        wait = asyncio.create_task(client.get(f"/api/v1/tasks/{submitted.task.id}?wait=50"))
        await eventually(lambda: bool(house.server.state.endings._waiting), "the wait")
        await house.revoke(Role.READ)
        await house.engine.cancel(submitted.task.id)
        assert (await wait).status_code == 401


async def test_while_the_keys_cannot_be_read_nobody_is_sent_away() -> None:
    doors = Doors()
    key, brief = await doors.key(Role.READ), await doors.key(Role.READ, expires=doors.clock.now() + 60 * SECOND)
    scope = websocket(authorization=f"Bearer {key.text}")
    await doors.gate.admit_websocket(scope, Role.READ)
    await doors.keyring.revoke(key.key.id)
    doors.store.broken = StoreUnavailable("the store is away")
    doors.grow_stale()
    await doors.gate.recheck(scope, Role.READ)
    doors.clock.advance(60 * SECOND)
    with pytest.raises(Refusal, match="has expired"):
        await doors.gate.recheck(websocket(authorization=f"Bearer {brief.text}"), Role.READ)
    doors.store.broken = None
    doors.grow_stale()
    with pytest.raises(Refusal, match="was revoked"):
        await doors.gate.recheck(scope, Role.READ)


async def test_a_cookie_of_elsewhere_does_not_matter_while_no_key_is_needed() -> None:
    doors = Doors()
    scope = websocket(cookie="fairlead_session=none")
    await doors.gate.admit_websocket(scope, Role.READ)
    await doors.gate.recheck(scope, Role.READ)


async def test_looking_again_costs_no_token() -> None:
    doors = Doors(ServerSettings(rate_limit=1, rate_burst=1))
    key = await doors.key(Role.READ)
    scope = websocket(authorization=f"Bearer {key.text}")
    await doors.gate.admit_websocket(scope, Role.READ)
    for _ in range(5):
        await doors.gate.recheck(scope, Role.READ)
    with pytest.raises(Refusal, match="over its rate limit"):
        await doors.gate.admit_websocket(scope, Role.READ)
