"""The choice between a store and a server in front of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlead.client.transport import Address, check_address, is_remote
from fairlead.core.errors import InvalidSettings
from fairlead.core.settings import Settings
from fairlead.engine.observe import Observer
from fairlead.sdk.connection import Connection
from fairlead.storage.opening import check_journal, check_url

if TYPE_CHECKING:
    from fairlead.sdk.remote import RemoteConnection


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
        # What only apps on a server need is not imported by the others.
        from fairlead.sdk.remote import RemoteConnection

        return RemoteConnection(Address(url, api_key), settings)
    return Connection(url, settings, journal=journal, observers=observers)
