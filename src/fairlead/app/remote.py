"""An app's way to a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.app.openings import Openings
from fairlead.client.engine import RemoteEngine
from fairlead.client.http.open import open_transport
from fairlead.client.http.transport import Address
from fairlead.client.source import RemoteSource
from fairlead.client.worker_protocol import RemoteLeases
from fairlead.core.settings import Settings
from fairlead.engine.events.types import Watcher
from fairlead.engine.worker_records import KindSlots
from fairlead.worker.keeper.keeper import Keeper, ProcessKeeper, ThreadKeeper
from fairlead.worker.keeper.lease_renewal import Remote


class RemoteConnection(Openings[RemoteEngine]):
    """The way to a server."""

    def __init__(self, address: Address, settings: Settings, watchers: Sequence[Watcher] = ()) -> None:
        super().__init__(address.url)
        self._watchers = watchers
        self._address = address
        self.settings = settings

    async def source(
        self, queues: Sequence[str], capabilities: Iterable[str], types: Iterable[str], *, slots: Sequence[KindSlots]
    ) -> RemoteSource:
        """Tasks for a worker of the running event loop, which has joined the server."""
        transport = open_transport(self._address, blocking=False)
        source = RemoteSource(transport, queues, frozenset(capabilities), frozenset(types), watchers=self._watchers)
        try:
            await source.join(slots)
        except BaseException:
            await transport.close()
            raise
        return source

    def keeper(self, source: RemoteSource, *, process: bool) -> Keeper:
        """Who keeps the leases of a worker that has joined."""
        settings = source.settings(self.settings)
        if process:
            return ProcessKeeper(self.url, settings, Remote(source.worker, self._address.key))
        leases = RemoteLeases(self._address, source.worker, settings)
        return ThreadKeeper(leases, leases.close)

    async def _open(self) -> RemoteEngine:
        return RemoteEngine(open_transport(self._address, blocking=False), self.settings, joining=True)

    def _open_inline(self) -> RemoteEngine:
        return RemoteEngine(open_transport(self._address, blocking=True), self.settings)
