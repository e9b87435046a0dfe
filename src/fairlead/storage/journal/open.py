"""Opening a hot store with a journal behind it."""

from __future__ import annotations

import warnings

from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.storage.credentials import Credentials, with_credentials
from fairlead.storage.deadline import share
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.protocol import Store


async def open_journal(
    hot: Store, url: str, *, blocking: bool = False, credentials: Credentials | None = None
) -> JournalStore:
    """A store over this hot store and the journal at this URL.

    A journal that is out of reach is no reason for workers not to start: it is asked again when it is needed.
    """
    if not isinstance(hot, HotStore):
        raise InvalidSettings("only a Redis store can have a journal behind it; use redis://host as the store URL")
    address = parse_journal(url)
    journal = Journal(replace(address, database=with_credentials(address.database, credentials)), blocking=blocking)
    store = JournalStore(hot, journal)
    with share(1, journal.address.database.timeout):
        try:
            await journal.ensure()
        except StoreUnavailable as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        except BaseException:
            await journal.close()
            raise
        await store.begin()
    return store
