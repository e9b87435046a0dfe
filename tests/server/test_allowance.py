"""A request is answered in the time of one call to the store, whatever it asks of it: its caller's key comes first."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.server.app import build
from fairlead.server.endpoint import Served
from fairlead.server.http.bodies import Deadlines
from fairlead.server.state import Allowance
from fairlead.storage.deadline import Budget
from fairlead.storage.values import Record
from tests.server.doors import CountingStore, Doors, websocket
from tests.server.test_access import ANY_ID, GUARDED, named

PATIENCE = 60.0


class KeysHang(CountingStore):
    """A store that never says which keys there are."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(0.05, "the store", blocking=False)

    async def scan(self, kind: str) -> list[Record]:
        if kind == "key":
            await asyncio.Event().wait()
        return await super().scan(kind)


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
async def test_a_key_that_cannot_be_looked_up_is_told_in_time(endpoint: Served[Any, Any]) -> None:
    doors = Doors(store=KeysHang())
    path = re.sub(r"\{[^}]*\}", ANY_ID, endpoint.path)
    async with asyncio.timeout(PATIENCE):
        said = await doors.call(endpoint.method, path, key=f"fl_{ANY_ID}_{ANY_ID}")
    assert said.status == 503
    assert "did not answer within 0.05 s" in said.json["detail"]


async def test_who_opens_a_websocket_is_told_in_time() -> None:
    doors = Doors(store=KeysHang())
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async with asyncio.timeout(PATIENCE):
        await build(doors.state)(websocket(), receive, send)
    assert said[0]["type"] == "websocket.close" and "did not answer within" in said[0]["reason"]


async def test_what_one_answer_has_taken_the_next_one_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    allowance, now = Allowance(PATIENCE, Deadlines(PATIENCE / 4)), time.monotonic()

    async def takes(seconds: float, *, comes: bool) -> None:
        nonlocal now
        monkeypatch.setattr(time, "monotonic", lambda: now)
        now += seconds
        while not comes:  # noqa: ASYNC110 - nothing that could be waited for comes
            await asyncio.sleep(0)

    with allowance:
        await takes(PATIENCE - 1, comes=True)
    with pytest.raises(StoreUnavailable, match="did not answer within 60 s"), allowance:
        await takes(2, comes=False)
