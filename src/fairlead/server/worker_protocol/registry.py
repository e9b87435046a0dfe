"""The workers that a server knows: read from the store, and remembered for a moment.

Workers are records of the store, so that any server can answer any call of any worker. A thousand of them that poll
must not cost a thousand scans: one scan serves all who ask within a moment, and who is not found makes another.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.core.errors import WorkerNotFound
from fairlead.core.identity import WorkerId
from fairlead.engine.worker_records import WorkerRecord, WorkerState
from fairlead.server.auth.credentials import Principal
from fairlead.server.http.problems import Refusal
from fairlead.wire.worker_protocol import RegisterRequest

_FRESH: Final = 1.0
"""Seconds for which what was read is as good as new."""

_ODD: Final = re.compile(r"[^A-Za-z0-9_.:-]+")
_HOST_LIMIT: Final = 100
_REGISTRATION_BYTES: Final = 6
"""Enough that no two registrations of one worker are the same; few, as the lease of each of its tasks has them."""


class RegisteredWorkers:
    """The registered workers of a store."""

    def __init__(self, engine: AdminEngine) -> None:
        self._worker_records = engine.worker_records
        self._known: dict[WorkerId, WorkerRecord] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def register(self, principal: Principal, request: RegisterRequest) -> WorkerId:
        """Make a worker known, which belongs to the caller's key from now on; its id."""
        worker = WorkerId(request.worker_id or _new_id(request.host))
        self._known[worker] = await self._worker_records.register(
            worker,
            queues=tuple(dict.fromkeys(request.queues)),
            capacity=request.capacity,
            capabilities=set(request.capabilities),
            types=None if request.task_types is None else set(request.task_types),
            host=request.host,
            version=request.version,
            key=principal.key,
            tenant=principal.tenant,
            registration=secrets.token_urlsafe(_REGISTRATION_BYTES),
            slots=request.slots,
        )
        return worker

    async def get(self, principal: Principal, worker: str) -> WorkerRecord:
        """A worker of the caller's key; refused when it is not registered, or belongs to another key."""
        present = await self._find(worker)
        if present.key == principal.key:
            return present
        if present.ownerless or principal.tenant not in (None, present.tenant):
            raise unknown(worker)
        remedy = "register a worker with the key that it is to call with"
        raise Refusal(
            "forbidden",
            f"the worker {worker[:200]!r} belongs to another key; {remedy}",
            field="worker_id",
            remedy=remedy,
        )

    async def of_others(self, principal: Principal, workers: Iterable[str]) -> frozenset[str]:
        """Those of these workers that another key has registered."""
        if asyncio.get_running_loop().time() - self._read_at > _FRESH:
            await self._read()
        known = [present for worker in workers if (present := self._known.get(WorkerId(worker))) is not None]
        return frozenset(each.id for each in known if each.key != principal.key and not each.ownerless)

    async def _find(self, worker: str) -> WorkerRecord:
        """A worker; refused when it is not registered."""
        now = asyncio.get_running_loop().time()
        if now - self._read_at > _FRESH or worker not in self._known:
            await self._read()
        present = self._known.get(WorkerId(worker))
        if present is None:
            raise unknown(worker)
        return present

    async def beat(
        self,
        principal: Principal,
        worker: str,
        running: int,
        *,
        draining: bool | None,
        by_kind: Mapping[str, int] | None = None,
    ) -> bool:
        """A worker is alive, and drains or not, or as before; whether it should drain."""
        present = await self.get(principal, worker)
        if draining is None:
            draining = present.state is WorkerState.DRAINING
        try:
            asked = await self._worker_records.beat(present.id, running=running, draining=draining, by_kind=by_kind)
        except WorkerNotFound:
            self._known.pop(present.id, None)
            raise unknown(worker) from None
        should = asked or draining
        state = WorkerState.DRAINING if should else WorkerState.ACTIVE
        self._known[present.id] = replace(present, running=running, state=state)
        return should

    async def drain(self, principal: Principal, worker: str) -> None:
        """A worker is to take no more tasks, and to leave."""
        present = await self.get(principal, worker)
        await self._worker_records.ask_drain(present.id)
        await self.beat(principal, worker, present.running, draining=True)

    async def leave(self, principal: Principal, worker: str) -> None:
        """A worker is gone."""
        present = await self.get(principal, worker)
        self._known.pop(present.id, None)
        await self._worker_records.leave(present.id)

    async def _read(self) -> None:
        """Read who there is; one reading for all that ask at once."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._scan())
        await asyncio.shield(self._reading)

    async def _scan(self) -> None:
        try:
            self._known = {present.id: present for present in await self._worker_records.workers()}
            self._read_at = asyncio.get_running_loop().time()
        finally:
            self._reading = None


def unknown(worker: str) -> Refusal:
    """The refusal of a worker that is not registered."""
    return Refusal(
        "not-found",
        f"worker {worker[:200]!r} is not registered: it has left, or sent no heartbeat for long; register again",
        field="worker_id",
        remedy="register again",
    )


def _new_id(host: str) -> str:
    """The host, so that a person finds it, and something that no other worker has."""
    return f"{_ODD.sub('-', host).strip('-')[:_HOST_LIMIT] or 'worker'}-{secrets.token_hex(4)}"
