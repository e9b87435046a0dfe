"""The choice between a store and a server in front of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from fairlead.app.config import load
from fairlead.app.connection import Connection
from fairlead.client.http.transport import Address, check_address, is_remote
from fairlead.core.errors import InvalidSettings
from fairlead.core.settings import Settings
from fairlead.core.validation import bad_setting, check_type
from fairlead.engine.events.types import Observer
from fairlead.storage.credentials import Credentials, with_command
from fairlead.storage.open import check_credentials, check_journal, check_url, is_postgres, is_redis

if TYPE_CHECKING:
    from fairlead.app.remote import RemoteConnection


class AppTarget(Struct, frozen=True):
    """Where an app's tasks are, and how they are treated."""

    store: str
    settings: Settings
    journal: str | None
    api_key: str | None


def completed(
    store: str | None,
    settings: Settings | None,
    journal: str | None,
    api_key: str | None,
    credentials: Credentials | None,
    journal_credentials: Credentials | None,
) -> AppTarget:
    """What an app's code says, and where it says nothing the configuration, which is read only where it has a say."""
    if (
        store is not None
        and settings is not None
        and (journal is not None or not is_redis(store))
        and (journal is None or journal_credentials is not None)
        and (credentials is not None or not (is_redis(store) or is_postgres(store)))
        and (api_key is not None or not is_remote(store))
    ):
        return AppTarget(store, settings, journal, api_key)
    configuration = load()
    store = configuration.store if store is None else store
    if credentials is None:
        store = with_command(store, configuration.credentials_command)
    if journal is None and is_redis(store):
        journal = configuration.journal_url
    elif journal is not None and journal_credentials is None:
        journal = with_command(journal, configuration.journal_credentials_command)
    return AppTarget(
        store,
        configuration.engine_settings() if settings is None else settings,
        journal,
        configuration.api_key if api_key is None else api_key,
    )


def check_store(
    url: str,
    journal: str | None = None,
    credentials: Credentials | None = None,
    journal_credentials: Credentials | None = None,
) -> None:
    """Raise InvalidSettings if neither a store, with this journal, nor a server can be at this URL."""
    check_type("store", url, str, "use a URL such as sqlite:///tasks.db", bad_setting)
    if not is_remote(url):
        check_url(url)
        check_journal(url, journal)
        check_credentials(url, journal, credentials, journal_credentials)
        return
    check_address(url)
    if journal is not None:
        raise InvalidSettings(f"the server at {url} has its own journal; leave the setting out here")
    if credentials is not None or journal_credentials is not None:
        raise InvalidSettings(f"the server at {url} takes no credentials except an api_key; leave them out here")


def connect(
    url: str,
    settings: Settings,
    *,
    journal: str | None = None,
    observers: Sequence[Observer] = (),
    api_key: str | None = None,
    credentials: Credentials | None = None,
    journal_credentials: Credentials | None = None,
) -> Connection | RemoteConnection:
    """The way to what is at this URL: a store, or a server in front of one.

    Observers are told of what this process does to a store; what a server does, it tells itself.
    """
    check_store(url, journal, credentials, journal_credentials)
    if is_remote(url):
        # What only apps on a server need is not imported by the others.
        from fairlead.app.remote import RemoteConnection

        return RemoteConnection(Address(url, api_key), settings)
    return Connection(
        url,
        settings,
        journal=journal,
        observers=observers,
        credentials=credentials,
        journal_credentials=journal_credentials,
    )
