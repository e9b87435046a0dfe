"""An app's way to a server, and the choice between that and a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.client.engine import RemoteEngine
from fairlead.client.leases import RemoteLeases
from fairlead.client.source import RemoteSource
from fairlead.client.transport import Address, check_address, is_remote, open_transport
from fairlead.core.errors import InvalidSettings
from fairlead.core.settings import Settings
from fairlead.engine.observe import Observer
from fairlead.sdk.connection import Connection, Openings
from fairlead.storage.opening import check_journal, check_url
from fairlead.worker.keeper import Keeper, ProcessKeeper, Remote, ThreadKeeper


class RemoteConnection(Openings[RemoteEngine]):
    """The way to a server."""

    def __init__(self, address: Address, settings: Settings) -> None:
        super().__init__(address.url)
        self._address = address
        self.settings = settings

    async def source(
        self, queues: Sequence[str], capabilities: Iterable[str], types: Iterable[str], *, capacity: int
    ) -> RemoteSource:
        """Tasks for a worker of the running event loop, which has joined the server."""
        transport = open_transport(self._address, blocking=False)
        source = RemoteSource(transport, queues, frozenset(capabilities), frozenset(types))
        try:
            await source.join(capacity)
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
        return RemoteEngine(open_transport(self._address, blocking=False), self.settings)

    def _open_inline(self) -> RemoteEngine:
        return RemoteEngine(open_transport(self._address, blocking=True), self.settings)


def check_store(url: str, journal: str | None = None) -> None:
    """Raise InvalidSettings if neither a store, with this journal, nor a server can be at this URL."""
    if not is_remote(url):
        check_url(url)
        check_journal(url, journal)
        return
    check_address(url)
    if journal is not None:
        raise InvalidSettings(f"the server at {url} has its own journal; leave the setting out here")


def connect(
    url: str,
    settings: Settings,
    *,
    journal: str | None = None,
    observers: Sequence[Observer] = (),
    api_key: str | None = None,
) -> Connection | RemoteConnection:
    """The way to what is at this URL: a store, or a server in front of one.

    Observers are told of what this process does to a store; what a server does, it tells itself.
    """
    check_store(url, journal)
    if is_remote(url):
        return RemoteConnection(Address(url, api_key), settings)
    return Connection(url, settings, journal=journal, observers=observers)
