"""Opening a hot store with a journal behind it."""

from __future__ import annotations

import warnings

from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.storage.journal.address import parse_journal
from fairlead.storage.journal.journal import Journal
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.protocol import Store


async def open_journal(hot: Store, url: str, *, blocking: bool = False) -> JournalStore:
    """A store over this hot store and the journal at this URL.

    A journal that is out of reach is no reason for workers not to start: it is asked again when it is needed.
    """
    if not isinstance(hot, HotStore):
        raise InvalidSettings("only a Redis store can have a journal behind it; use redis://host as the store URL")
    journal = Journal(parse_journal(url), blocking=blocking)
    try:
        await journal.ensure()
    except StoreUnavailable as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    except BaseException:
        await journal.close()
        raise
    return JournalStore(hot, journal)
