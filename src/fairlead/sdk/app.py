"""The app: what users write their task types with."""

from __future__ import annotations

import logging
import platform
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import WorkerId
from fairlead.core.settings import Settings
from fairlead.core.submission import DEFAULT_QUEUE
from fairlead.engine.observe import Observer
from fairlead.sdk.configuration import load
from fairlead.sdk.connection import Connection
from fairlead.sdk.definition import CoroutineTask, FunctionTask, Options
from fairlead.sdk.rehearsal import Rehearsal
from fairlead.storage.opening import check_journal, check_url
from fairlead.worker.handlers import Handler, Handlers
from fairlead.worker.isolation import location
from fairlead.worker.keeper import Keeper, ProcessKeeper, ThreadKeeper
from fairlead.worker.serving import serve
from fairlead.worker.source import EngineSource
from fairlead.worker.worker import Worker, WorkerSettings

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("fairlead.worker")


class TaskDecorator(Protocol):
    """Turns a function into a task type."""

    # A coroutine function is a function too: the first signature that fits is the one that counts.
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> CoroutineTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class Fairlead:
    """An app: a store and the task types that run on it."""

    def __init__(
        self,
        store: str | None = None,
        *,
        journal: str | None = None,
        settings: Settings | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        """What is not given comes from the configuration: FAIRLEAD_* variables, fairlead.toml, defaults."""
        if store is None or settings is None or (journal is None and store.startswith("redis")):
            configuration = load()
            store = configuration.store if store is None else store
            settings = configuration.engine_settings() if settings is None else settings
            if journal is None and store.startswith("redis"):
                journal = configuration.journal_url
        check_url(store)
        check_journal(store, journal)
        self.settings = settings
        self.handlers = Handlers()
        self._observers = observers
        self._connection = Connection(store, self.settings, journal=journal, observers=observers)

    @property
    def store(self) -> str:
        """The URL of the store."""
        return self._connection.url

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> CoroutineTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        isolate: bool = False,
        memory_limit: int | None = None,
        retry_on: Iterable[type[Exception]] = (Exception,),
        reject_on: Iterable[type[Exception]] = (),
        **options: Unpack[Options],
    ) -> TaskDecorator: ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Make a function a task type: `@app.task` or `@app.task(priority="high", …)`.

        `isolate` runs it in a process of its own, which is killed at its timeout, on cancel, or past `memory_limit`
        bytes. Errors in `reject_on`, or not in `retry_on`, are not retried.
        """
        if function:
            return self._define(*function)
        return lambda function: self._define(function, **options)

    def _define(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        isolate: bool = False,
        memory_limit: int | None = None,
        retry_on: Iterable[type[Exception]] = (Exception,),
        reject_on: Iterable[type[Exception]] = (),
        **options: Any,
    ) -> CoroutineTask[..., Any] | FunctionTask[..., Any]:
        handler = Handler(
            name or function.__name__,
            function,
            isolate=isolate,
            memory_limit=memory_limit,
            retry_on=tuple(retry_on),
            reject_on=tuple(reject_on),
        )
        if isolate:
            location(handler)
        self.handlers.add(handler)
        kind = CoroutineTask if handler.is_async else FunctionTask
        return kind(function, handler, self.connection, options)

    def connection(self) -> Connection:
        """The way to the store."""
        return self._connection

    async def worker(
        self,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        capabilities: Iterable[str] = (),
        settings: WorkerSettings | None = None,
        keeper_process: bool = True,
    ) -> Worker:
        """A worker for this app's task types, to be run on the running event loop."""
        if not self.handlers.types:
            raise InvalidSettings("the app has no task types, so a worker has nothing to do; add one with @app.task")
        identity = worker_id()
        log.info("this is worker %s", identity)
        source = EngineSource(
            await self._connection.engine(), identity, list(queues), frozenset(capabilities), self.handlers.types
        )
        return Worker(source, self.handlers, self._keeper(keeper_process), settings)

    def run_worker(
        self,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        capabilities: Iterable[str] = (),
        settings: WorkerSettings | None = None,
        keeper_process: bool = True,
    ) -> None:
        """Work until the process is asked to leave by SIGTERM or Ctrl-C."""

        async def prepare() -> list[Worker]:
            worker = await self.worker(
                queues=queues, capabilities=capabilities, settings=settings, keeper_process=keeper_process
            )
            return [worker]

        serve(prepare, self.close)

    def testing(self) -> Rehearsal:
        """A context in which tasks run in this process, in memory, on a clock that the test moves."""
        return Rehearsal(self.handlers, self.settings, self._swap)

    @property
    def journal(self) -> str | None:
        """The URL of the journal behind the store, if there is one."""
        return self._connection.journal

    def rebind(self, store: str, observers: Sequence[Observer] = (), *, journal: str | None = None) -> None:
        """Use another store, and tell these observers too: for a program that runs an app, before it does."""
        check_url(store)
        check_journal(store, journal)
        self._observers = (*self._observers, *observers)
        self._connection = Connection(store, self.settings, journal=journal, observers=self._observers)

    def _swap(self, connection: Connection) -> Connection:
        """Use another connection; the answer is the one used so far."""
        self._connection, former = connection, self._connection
        return former

    async def close(self) -> None:
        """Close the store, as far as this event loop and synchronous code have opened it."""
        await self._connection.close()

    def _keeper(self, process: bool) -> Keeper:
        if process and not self.store.startswith("memory:"):
            return ProcessKeeper(self.store, self.settings)
        return ThreadKeeper(self._connection.inline())


def worker_id() -> WorkerId:
    """A new worker's name: its host, so that a person finds it, and something that no other worker has."""
    return WorkerId(f"{platform.node() or 'worker'}-{secrets.token_hex(4)}")
