"""The app: what users write their task types with."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from fairlead.app.connection import Connection, Link, completed, connect
from fairlead.app.cron import CronDecorator, ScheduleOptions, schedule_of
from fairlead.app.handle import TaskHandle, parents_of, parents_of_sync
from fairlead.app.producer import Producer
from fairlead.app.task_type import CoroutineTask, FunctionTask, Options, TaskDefinition
from fairlead.core.circuit import CircuitSettings, check_circuit
from fairlead.core.errors import InvalidSchedule, InvalidSettings, ScheduleExists, StoreRefused
from fairlead.core.identity import WorkerId, names_of
from fairlead.core.instant import seconds
from fairlead.core.queues.shares import shares_of
from fairlead.core.settings import Settings
from fairlead.core.submission import DEFAULT_QUEUE, check_parameters
from fairlead.core.validation import Duration, bad_setting, check_type, setting_of, several_of, shown, span_of
from fairlead.engine.events.types import Observer, Watcher
from fairlead.engine.runtime.telemetry import Logger
from fairlead.storage.credentials import Credentials
from fairlead.storage.open import is_postgres, is_redis
from fairlead.worker.handlers import Handler
from fairlead.worker.isolation.pool import location
from fairlead.worker.process import Service, serve
from fairlead.worker.resources import Middleware, Overrides, Resources
from fairlead.worker.slots import WorkerSlots
from fairlead.worker.source import EngineSource, Source
from fairlead.worker.worker import Worker, WorkerSettings

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from fairlead.app.remote import RemoteConnection
    from fairlead.app.testing import Rehearsal
    from fairlead.engine.metrics.collector import Metrics

log = Logger("fairlead.worker")


class TaskDecorator(Protocol):
    """Turns a function into a task type."""

    # A coroutine function is a function too: the first signature that fits is the one that counts.
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> CoroutineTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTask[P, R]: ...


class Fairlead(Producer):
    """An app: a store and the task types that run on it."""

    def __init__(
        self,
        store: str | None = None,
        *,
        journal: str | None = None,
        settings: Settings | None = None,
        observers: Sequence[Observer] = (),
        api_key: str | None = None,
        credentials: Credentials | None = None,
        journal_credentials: Credentials | None = None,
        lifespan: Callable[[Fairlead], AbstractAsyncContextManager[Any]] | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        """What is not given comes from the configuration: FAIRLEAD_* variables, fairlead.toml, defaults.

        The store may be a server: `https://host`, with a key to it as `api_key`. To Redis and PostgreSQL, `credentials`
        gives a password, or a user name and a password, for each new connection. What cannot be right is refused here,
        with InvalidSettings; nothing is opened yet.

        `lifespan` is entered in each worker, and in each process of its isolated handlers, before the first task;
        what it yields is `TaskContext.state`. `middleware` sees each submit and surrounds each attempt, the first one
        outermost.
        """
        super().__init__(self.connection, Resources(self, lifespan, middleware))
        _check_app(store, journal, settings, observers, api_key)
        told = completed(store, settings, journal, api_key, credentials, journal_credentials)
        self.settings = told.settings
        self._observers = observers
        self._api_key = told.api_key
        self._credentials, self._journal_credentials = credentials, journal_credentials
        self._connection: Connection | RemoteConnection = connect(
            told.store,
            told.settings,
            journal=told.journal,
            observers=observers,
            api_key=told.api_key,
            credentials=credentials,
            journal_credentials=journal_credentials,
        )

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
        soft_timeout: Duration | None = None,
        retry_on: Iterable[type[Exception]] = (Exception,),
        reject_on: Iterable[type[Exception]] = (),
        circuit: CircuitSettings | None = None,
        **options: Unpack[Options],
    ) -> TaskDecorator: ...

    def task(self, *function: Any, **options: Any) -> Any:
        """Make a function a task type: `@app.task` or `@app.task(priority="high", …)`.

        `isolate` runs it in a process of its own, which is killed at its timeout, on cancel, or past `memory_limit`
        bytes. `soft_timeout` raises SoftTimeout within the handler after that time, before its timeout. Errors in
        `reject_on`, or not in `retry_on`, are not retried. `circuit` has the type's tasks wait for a while when too
        many fail; it is stored when a worker of the app starts.
        """
        if not function:
            return lambda function: self._define(function, **options)
        if len(function) > 1:
            raise InvalidSettings(f"{shown(function)} are several functions; write @app.task above each def")
        return self._define(*function, **options)

    def _define(
        self,
        function: Any,
        *,
        name: str | None = None,
        isolate: bool = False,
        memory_limit: int | None = None,
        soft_timeout: Duration | None = None,
        retry_on: Iterable[type[Exception]] = (Exception,),
        reject_on: Iterable[type[Exception]] = (),
        circuit: CircuitSettings | None = None,
        **options: Any,
    ) -> CoroutineTask[..., Any] | FunctionTask[..., Any]:
        if not callable(function) or not hasattr(function, "__name__"):
            raise InvalidSettings(f"{shown(function)} is not a function; write @app.task above a def")
        handler = Handler(
            function.__name__ if name is None else name,
            function,
            isolate=isolate,
            memory_limit=memory_limit,
            soft_timeout=_soft(soft_timeout, options.get("timeout")),
            retry_on=retry_on,
            reject_on=reject_on,
            resources=self.handlers.resources,
        )
        if circuit is not None:
            check_circuit(f"task {handler.type}: circuit", circuit)
        if isolate:
            location(handler)
        kind = CoroutineTask if handler.is_async else FunctionTask
        definition: CoroutineTask[..., Any] | FunctionTask[..., Any] = kind(function, handler, self.connection, options)
        # What was refused leaves no trace.
        self.handlers.add(handler)
        self._definitions[handler.type] = definition
        if circuit is not None:
            self._declared_circuits[handler.type] = circuit
        return definition

    def cron(
        self,
        cron: str,
        *,
        name: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> CronDecorator:
        """Submit a task type at set times: `@app.cron("*/5 * * * *", timezone="Europe/Berlin")` over `@app.task`.

        The schedule has the name of its task type unless it is given another. It is stored when a worker of the app
        starts; one that is no longer declared stays in the store until it is removed there.
        """

        def declare(task: Any) -> Any:
            definition = task if isinstance(task, TaskDefinition) else self._define(task)
            submission = definition.call(**_by_name(parameters)).submission
            # What no worker of this app could store is refused here, and not when the first of them starts.
            check_parameters(submission.parameters, self.settings.payload_limit)
            schedule = schedule_of(definition.handler.type if name is None else name, cron, submission, options)
            if schedule.name in self._declared_schedules:
                raise InvalidSchedule(
                    "name", f"the schedule {schedule.name!r} is declared twice; give one of them a name of its own"
                )
            self._declared_schedules[schedule.name] = schedule
            return definition

        return declare

    def connection(self) -> Link:
        """The way to the store, or to the server in front of it."""
        return self._connection

    def store_connection(self) -> Connection:
        """The way to the store itself; raises InvalidSettings if the app is on a server."""
        if not isinstance(self._connection, Connection):
            raise InvalidSettings(
                f"{self.store} is a server, and this needs the store itself; give the store's own URL"
            )
        return self._connection

    async def worker(
        self,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        capabilities: Iterable[str] = (),
        settings: WorkerSettings | None = None,
        keeper_process: bool = True,
        share: Literal["rank", "all", "strict"] | None = None,
    ) -> Worker:
        """A worker for this app's task types, to be run on the running event loop.

        Queues with weights, such as `["web=3", "bulk"]`, share a worker that opens the store itself: it takes of them
        by weight, among tasks of the same rank or, with the share `all`, before priority. With `strict` a later one
        has what those before it leave.
        """
        names, shares = shares_of(several_of("queues", queues, "write a list of names, such as ['mail']"), share)
        queues, capabilities = names_of("queues", names), names_of("capabilities", capabilities)
        if not queues:
            raise InvalidSettings("queues is empty, so the worker would claim nothing; name at least one")
        if settings is not None:
            check_type("settings", settings, WorkerSettings, "write WorkerSettings(…)", bad_setting)
        if not self.handlers.types:
            raise InvalidSettings("the app has no task types, so a worker has nothing to do; add one with @app.task")
        # What cannot be run is not declared in the store either.
        self.handlers.check()
        # A keeper process waits for what comes over a pipe, which is not possible there.
        keeper_process = keeper_process and sys.platform != "win32"
        source: Source
        if not isinstance(self._connection, Connection):
            if shares is not None:
                raise InvalidSettings(
                    f"queues cannot share a worker over {self.store}, which claims for it; leave weights and share "
                    f"out, or give the worker the store's own URL"
                )
            slots = WorkerSlots(self.handlers, (settings or WorkerSettings()).capacities).counts
            remote = await self._connection.source(queues, capabilities, self.handlers.types, slots=slots)
            identity, source = remote.worker, remote
            keeper = self._connection.keeper(remote, process=keeper_process)
            await self._declare_remotely(self._connection, identity)
            await self._publish(await self._connection.engine(), identity)
        else:
            identity = worker_id()
            engine = await self._connection.engine()
            await engine.schedules.declare(self._declared_schedules.values())
            await engine.circuits.declare(self._declared_circuits)
            await self._publish(engine, identity)
            types = self.handlers.types
            source = EngineSource(engine, identity, list(queues), frozenset(capabilities), types, shares)
            keeper = self._connection.keeper(process=keeper_process)
        log.info("this is worker %s", identity)
        return Worker(source, self.handlers, keeper, settings, metrics=self.metrics)

    def run_worker(
        self,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        capabilities: Iterable[str] = (),
        settings: WorkerSettings | None = None,
        keeper_process: bool = True,
        metrics_host: str = "127.0.0.1",
        metrics_port: int | None = None,
        share: Literal["rank", "all", "strict"] | None = None,
    ) -> None:
        """Work until the process is asked to leave by SIGTERM or Ctrl-C, or for as long as the settings say.

        With a `metrics_port` it serves its metrics for Prometheus there; that needs `Metrics()` among the app's
        observers.
        """

        async def prepare() -> list[Service]:
            worker = await self.worker(
                queues=queues,
                capabilities=capabilities,
                settings=settings,
                keeper_process=keeper_process,
                share=share,
            )
            return [await self.exposed(worker, metrics_host, metrics_port)]

        serve(prepare, self.close)

    async def parents(self) -> list[TaskHandle[Any]]:
        """Inside a handler: the tasks that this one waited for, in the order they were named."""
        return await parents_of(self._connection, self.handlers)

    def parents_sync(self) -> list[TaskHandle[Any]]:
        """`parents`, from synchronous code."""
        return parents_of_sync(self._connection, self.handlers)

    async def parent_results(self) -> list[Any]:
        """Inside a handler: the results of the tasks that this one waited for; raises TaskFailed if one has none."""
        return [parent.result_seen() for parent in await self.parents()]

    def parent_results_sync(self) -> list[Any]:
        """`parent_results`, from synchronous code."""
        return [parent.result_seen() for parent in self.parents_sync()]

    @property
    def metrics(self) -> Metrics | None:
        """What counts the app's tasks: the `Metrics` among its observers, if there is one."""
        if not self._observers:
            return None
        from fairlead.engine.metrics.collector import Metrics

        return next((observer for observer in self._observers if isinstance(observer, Metrics)), None)

    async def exposed(self, worker: Worker, host: str, port: int | None) -> Service:
        """The worker, showing its metrics at this address if there is a port."""
        if port is None:
            return worker
        from fairlead.worker.metrics_http import Exposed, listen

        if self.metrics is None:
            raise InvalidSettings(
                "a metrics_port shows what the app counts, and it counts nothing; make it Fairlead(…, "
                "observers=[fairlead.Metrics()])"
            )
        return Exposed(worker, await listen(self.metrics, host, port))

    def testing(self, *, overrides: Overrides | None = None, patience: Duration = 10.0) -> Rehearsal:
        """A context in which tasks run in this process, in memory, on a clock that the test moves.

        A handler that has run for `patience` of real time, which is seconds or a timedelta, is taken to hang, and times
        out. `overrides` puts other providers in the place of some, and another lifespan in that of the app's:
        `{session: fake_session}`.
        """
        from fairlead.app.testing import Rehearsal

        return Rehearsal(self.handlers, self.settings, self._swap, self._declared_schedules, patience, overrides or {})

    @property
    def journal(self) -> str | None:
        """The URL of the journal behind the store, if there is one."""
        return self._connection.journal

    def rebind(
        self,
        store: str,
        observers: Sequence[Observer] = (),
        *,
        journal: str | None = None,
        api_key: str | None = None,
    ) -> None:
        """Use another store, and tell these observers too: for a program that runs an app, before it does."""
        self._observers = (*self._observers, *observers)
        self._api_key = api_key or self._api_key
        self._connection = connect(
            store,
            self.settings,
            journal=journal,
            observers=self._observers,
            api_key=self._api_key,
            # Another store may have no use for them.
            credentials=self._credentials if is_redis(store) or is_postgres(store) else None,
            journal_credentials=None if journal is None else self._journal_credentials,
        )

    def _swap(self, connection: Connection | RemoteConnection) -> Connection | RemoteConnection:
        """Use another connection; the answer is the one used so far."""
        self._connection, former = connection, self._connection
        return former

    async def close(self) -> None:
        """Close the store, as far as this event loop and synchronous code have opened it."""
        await self._connection.close()

    async def _declare_remotely(self, connection: RemoteConnection, worker: WorkerId) -> None:
        """Put the declared schedules and circuits, if the key may: one for workers only need not."""
        engine = await connection.engine()
        try:
            await engine.schedules.declare(self._declared_schedules.values(), worker)
        except (ScheduleExists, StoreRefused) as error:
            log.warning("the schedules %s are not stored: %s", ", ".join(self._declared_schedules), error)
        try:
            await engine.circuits.declare(self._declared_circuits)
        except StoreRefused as error:
            log.warning("the circuits of %s are not stored: %s", ", ".join(self._declared_circuits), error)


def _soft(said: Duration | None, timeout: object) -> float | None:
    """A soft timeout in seconds; raises InvalidSettings for one that could never be reached."""
    if said is None:
        return None
    span = setting_of("soft_timeout", said, least=1)
    if timeout is not None and span >= span_of("timeout", timeout, bad_setting):
        raise InvalidSettings(
            f"soft_timeout {shown(said)} is no less than the timeout {shown(timeout)}, at which the attempt is "
            f"stopped; make it shorter"
        )
    return seconds(span)


def _check_app(store: object, journal: object, settings: object, observers: object, api_key: object) -> None:
    """Raise InvalidSettings for what is not of its type; what it says is for those who use it."""
    for name, said in (("store", store), ("journal", journal)):
        if said is not None:
            check_type(name, said, str, "use a URL such as sqlite:///tasks.db", bad_setting)
    if settings is not None:
        check_type("settings", settings, Settings, "write Settings(…)", bad_setting)
    if api_key is not None:
        check_type("api_key", api_key, str, "use the text that `fairlead keys create` shows", bad_setting)
    if (
        not isinstance(observers, Sequence)
        or isinstance(observers, str)
        or not all(callable(each) or isinstance(each, Watcher) for each in observers)
    ):
        raise InvalidSettings(f"observers {shown(observers)} is not a list of callables; write [Metrics()]")


def _by_name(parameters: object) -> dict[str, Any]:
    """The parameters of a schedule's task, as a call takes them."""
    said = {} if parameters is None else parameters
    if not isinstance(said, Mapping) or not all(isinstance(name, str) for name in said):
        raise InvalidSchedule("parameters", f"parameters {shown(said)} is not a dict by name; write {{'name': value}}")
    return dict(said)


def worker_id() -> WorkerId:
    """A new worker's name: its host, so that a person finds it, and something that no other worker has."""
    return WorkerId(f"{platform.node() or 'worker'}-{os.urandom(4).hex()}")
