"""Keeping leases over HTTP: what the keeper of a worker needs of an engine, from a server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from fairlead.client.http.transport import Address
from fairlead.client.open import open_transport
from fairlead.client.worker_protocol import WorkerCalls, timed_out
from fairlead.core.errors import StoreUnavailable, WorkerNotFound
from fairlead.core.identity import WorkerId
from fairlead.core.instant import SECOND
from fairlead.core.settings import Settings
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.values import Beat, Pulse

_LOOKS_PER_BEAT: Final = 4


class RemoteLeases:
    """The leases of one worker; its coroutines never suspend, and may be driven from a thread."""

    def __init__(self, address: Address, worker: WorkerId, settings: Settings) -> None:
        """The settings say how often to beat."""
        self.settings = settings
        self._transport = open_transport(address, blocking=True)
        self._calls = WorkerCalls(self._transport, worker)
        self._look_interval = settings.heartbeat / SECOND / _LOOKS_PER_BEAT
        self._asked_at = 0.0

    async def heartbeat(self, beats: Sequence[Beat]) -> list[Pulse]:
        """Renew leases."""
        return await self._beat(beats, renew=True)

    async def look(self, beats: Sequence[Beat]) -> list[Pulse]:
        """What a heartbeat would learn, without renewing anything; asked only now and then, for a request is dear."""
        if time.monotonic() - self._asked_at < self._look_interval:
            return [Pulse.HELD] * len(beats)
        return await self._beat(beats, renew=False)

    async def time_out(self, beats: Sequence[Beat]) -> None:
        """Settle attempts as timed out, for a worker that does not say so; what is lost stays lost."""
        await self._calls.settle([timed_out(beat) for beat in beats])

    def close(self) -> None:
        """Close the way to the server."""
        run_inline(self._transport.close())

    async def _beat(self, beats: Sequence[Beat], *, renew: bool) -> list[Pulse]:
        try:
            pulses, _ = await self._calls.heartbeat(beats, renew=renew)
        except WorkerNotFound as error:
            # The worker registers again when it hears of it itself.
            raise StoreUnavailable(str(error)) from None
        self._asked_at = time.monotonic()
        return pulses
