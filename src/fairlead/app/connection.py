"""An app's way to its store, or to a server in front of one; and what the parts of an app share.

A store has one engine for each event loop, and one for synchronous code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from fairlead.admin.engine import AdminEngine
from fairlead.admin.facade import Facade
from fairlead.app.config import load
from fairlead.app.openings import Openings
from fairlead.client.http.transport import Address, check_address, is_remote
from fairlead.core.errors import InvalidSettings
from fairlead.core.settings import Settings
from fairlead.core.validation import bad_setting, check_type
from fairlead.engine.events.types import Observer, Watcher
from fairlead.engine.runtime.clock import Clock
from fairlead.engine.runtime.inline import run_inline, sleep_inline
from fairlead.storage.credentials import Credentials, named, with_command
from fairlead.storage.open import (
    check_credentials,
    check_journal,
    check_url,
    is_postgres,
    is_redis,
    open_store,
    prepare_store,
)
from fairlead.storage.protocol import Store

if TYPE_CHECKING:
    from fairlead.app.remote import RemoteConnection
    from fairlead.worker.keeper.keeper import Keeper

log = logging.getLogger("fairlead.worker")


class Link(Protocol):
    """The way from an app to its tasks: to the store itself, or to a server in front of it."""

    @property
    def url(self) -> str: ...

    @property
    def journal(self) -> str | None: ...

    @property
    def patience(self) -> float | None:
        """How long to wait for a result if nobody says so, in seconds; None for as long as it takes."""
        ...

    async def engine(self) -> Facade:
        """The engine of the running event loop."""
        ...

    def inline(self) -> Facade:
        """The engine for synchronous code; safe for threads, and its coroutines never suspend."""
        ...

    async def close(self) -> None: ...

    def close_inline(self) -> None: ...


class Connection(Openings[AdminEngine]):
    """The way to a store."""

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        journal: str | None = None,
        clock: Clock | None = None,
        observers: Sequence[Observer] = (),
        credentials: Credentials | None = None,
        journal_credentials: Credentials | None = None,
    ) -> None:
        super().__init__(url, journal)
        self.credentials = credentials
        self.journal_credentials = journal_credentials
        self.settings = settings
        self._clock = clock
        self._observers = observers
        prepare_store(url, journal=journal)
        self._memory = _memory_store() if url.startswith("memory:") else None

    def keeper(self, *, process: bool) -> Keeper:
        """Who keeps the leases of a worker on this store."""
        from fairlead.worker.keeper.keeper import ProcessKeeper, ThreadKeeper

        if process and self._memory is None:
            asked = (self.credentials, self.journal_credentials)
            found = [None if credentials is None else named(credentials) for credentials in asked]
            if sum(known is None for known in found) == sum(credentials is None for credentials in asked):
                return ProcessKeeper(
                    self.url,
                    self.settings,
                    journal=self.journal,
                    credentials=found[0],
                    journal_credentials=found[1],
                )
            log.warning(
                "another process cannot find the credentials function by its name, so a thread keeps the leases and "
                "not a process; define it at the top of a module"
            )
        return ThreadKeeper(self.inline())

    async def _open(self) -> AdminEngine:
        engine = self._engine(await self._store(blocking=False), batching=True)
        await engine.follow_clock()
        return engine

    def _open_inline(self) -> AdminEngine:
        engine = self._engine(run_inline(self._store(blocking=True)), batching=False)
        run_inline(engine.follow_clock())
        return engine

    async def _store(self, *, blocking: bool) -> Store:
        if self._memory is not None:
            return self._memory
        return await open_store(
            self.url,
            journal=self.journal,
            blocking=blocking,
            credentials=self.credentials,
            journal_credentials=self.journal_credentials,
        )

    def _engine(self, store: Store, *, batching: bool) -> AdminEngine:
        return AdminEngine(store, self.settings, clock=self._clock, observers=self._observers, batching=batching)


def _memory_store() -> Store:
    # Imported only by those who use it: it is a third of a megabyte.
    from fairlead.storage.memory import MemoryStore

    return MemoryStore()


Sleep: TypeAlias = Callable[[float], Awaitable[object]]
"""Waits for so many seconds, as `asyncio.sleep` does."""


class EngineRequests:
    """What is asked of one engine."""

    def __init__(self, engine: Facade, link: Link, sleep: Sleep) -> None:
        self._engine = engine
        self._link = link
        self._sleep = sleep


R = TypeVar("R", bound=EngineRequests)
D = TypeVar("D")


class Part:
    """A part of an app, and its way to the engine: that of the running event loop, or the one for synchronous code."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect

    async def _engine(self) -> Facade:
        return await self._connect().engine()

    def _inline(self) -> Facade:
        return self._connect().inline()

    async def _requests(self, kind: type[R]) -> R:
        link = self._connect()
        return kind(await link.engine(), link, asyncio.sleep)

    def _requests_inline(self, kind: type[R]) -> R:
        link = self._connect()
        return kind(link.inline(), link, sleep_inline)


class DeclaringPart(Part, Generic[D]):
    """A part of an app for what programs declare beside what people set."""

    def __init__(self, connect: Callable[[], Link], declared: dict[str, D]) -> None:
        super().__init__(connect)
        self.declared = declared
        """What the app declares, by name."""


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

    Observers are told of what this process does to a store; what a server does, it tells itself. But watchers that
    follow workers are told what becomes of the tasks that a worker here has from a server.
    """
    check_store(url, journal, credentials, journal_credentials)
    if is_remote(url):
        # What only apps on a server need is not imported by the others.
        from fairlead.app.remote import RemoteConnection

        watchers = [each for each in observers if isinstance(each, Watcher) and each.follows_workers]
        return RemoteConnection(Address(url, api_key), settings, watchers)
    return Connection(
        url,
        settings,
        journal=journal,
        observers=observers,
        credentials=credentials,
        journal_credentials=journal_credentials,
    )
