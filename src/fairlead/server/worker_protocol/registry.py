"""The workers that a server knows: read from the store, and remembered for a moment.

Workers are records of the store, so that any server can answer any call of any worker. A thousand of them that poll
must not cost a thousand scans: one scan serves all who ask within a moment, and who is not found makes another.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import WorkerNotFound
from fairlead.core.identity import WorkerId
from fairlead.engine.engine import Engine
from fairlead.engine.presence import WorkerPresence, WorkerState
from fairlead.server.refusals import Refusal
from fairlead.wire.workers import RegisterRequest

_FRESH: Final = 1.0
"""Seconds for which what was read is as good as new."""

_ODD: Final = re.compile(r"[^A-Za-z0-9_.:-]+")
_HOST_LIMIT: Final = 100


class Roster:
    """The registered workers of a store."""

    def __init__(self, engine: Engine) -> None:
        self._presence = engine.presence
        self._known: dict[WorkerId, WorkerPresence] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def register(self, request: RegisterRequest) -> WorkerId:
        """Make a worker known; its id."""
        worker = WorkerId(request.worker_id or _new_id(request.host))
        self._known[worker] = await self._presence.register(
            worker,
            queues=tuple(dict.fromkeys(request.queues)),
            capacity=request.capacity,
            capabilities=set(request.capabilities),
            types=None if request.task_types is None else set(request.task_types),
            host=request.host,
            version=request.version,
        )
        return worker

    async def get(self, worker: str) -> WorkerPresence:
        """A worker; refused when it is not registered."""
        now = asyncio.get_running_loop().time()
        if now - self._read_at > _FRESH or worker not in self._known:
            await self._read()
        present = self._known.get(WorkerId(worker))
        if present is None:
            raise unknown(worker)
        return present

    async def beat(self, worker: str, running: int, *, draining: bool | None) -> bool:
        """A worker is alive, and drains or not, or as before; whether it should drain."""
        present = await self.get(worker)
        if draining is None:
            draining = present.state is WorkerState.DRAINING
        try:
            asked = await self._presence.beat(present.id, running=running, draining=draining)
        except WorkerNotFound:
            self._known.pop(present.id, None)
            raise unknown(worker) from None
        state = WorkerState.DRAINING if draining else WorkerState.ACTIVE
        self._known[present.id] = replace(present, running=running, state=state)
        return asked or draining

    async def drain(self, worker: str) -> None:
        """A worker is to take no more tasks, and to leave."""
        present = await self.get(worker)
        await self._presence.ask_drain(present.id)
        await self.beat(worker, present.running, draining=True)

    async def leave(self, worker: str) -> None:
        """A worker is gone."""
        present = await self.get(worker)
        self._known.pop(present.id, None)
        await self._presence.leave(present.id)

    async def _read(self) -> None:
        """Read who there is; one reading for all that ask at once."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._scan())
        await asyncio.shield(self._reading)

    async def _scan(self) -> None:
        try:
            self._known = {present.id: present for present in await self._presence.workers()}
            self._read_at = asyncio.get_running_loop().time()
        finally:
            self._reading = None


def unknown(worker: str) -> Refusal:
    """The refusal of a worker that is not registered."""
    return Refusal(
        "not-found",
        f"no worker {worker[:200]!r} is registered: it left, or was not heard of for long; register again",
        field="worker_id",
        remedy="register again",
    )


def _new_id(host: str) -> str:
    """The host, so that a person finds it, and something that no other worker has."""
    return f"{_ODD.sub('-', host).strip('-')[:_HOST_LIMIT] or 'worker'}-{secrets.token_hex(4)}"
