"""Resources: what the handlers of an app share, and how it is put around each call of one.

That is the app's middleware, the providers of the handler's parameters, and what the app's lifespan yields. A handler
that uses none of it is called as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any, Final, TypeAlias

from fairlead.core.errors import InvalidSettings
from fairlead.core.submission import Submission
from fairlead.core.validation import bad_setting, several_of, shown
from fairlead.worker.context import Portal, TaskContext, current_task
from fairlead.worker.providers import name_of, takes_context

Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Called with the app, once in each process that runs its handlers."""

Overrides: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]
"""What a test puts in place of providers, and of the lifespan."""


class Middleware:
    """What an app does at each submit and around each attempt; override what you need of it."""

    def on_submit(self, submission: Submission) -> Submission:
        """Look at what is about to be submitted from Python, or change it; must be quick, and do no I/O."""
        return submission

    def attempt(self, context: TaskContext, /) -> AbstractContextManager[None] | AbstractAsyncContextManager[None]:
        """A context manager around the call of the handler, entered where that runs: coroutine, thread or process.

        It may raise another error than the handler's, but an error that it swallows fails the attempt all the same.
        """
        return contextlib.nullcontext()


_attributes_of: Final[Callable[[BaseException], dict[str, Any]]] = vars(BaseException)["__dict__"].__get__


class Blame(str):
    """The note on an error that says who raised it, where that was not the handler."""

    __slots__ = ()


def blame(error: BaseException, who: str) -> None:
    """Note on an error who raised it, unless that is noted already."""
    if blamed(error) is None:
        # An error may refuse to be written to, and its notes may raise whatever they like.
        with contextlib.suppress(BaseException):
            BaseException.add_note(error, Blame(f"raised by {who}"))


def blamed(error: BaseException) -> str | None:
    """Who raised an error, if that was noted on it."""
    # Past its own attributes, which may raise anything when they are asked for.
    notes = _attributes_of(error).get("__notes__")
    if type(notes) is not list:
        return None
    return next((str.__str__(note) for note in notes if type(note) is Blame), None)


class Resources:
    """What the handlers of an app share."""

    def __init__(
        self, app: object = None, lifespan: Lifespan | None = None, middleware: Iterable[Middleware] = ()
    ) -> None:
        if lifespan is not None:
            _check_lifespan(lifespan)
        self.middleware: Sequence[Any] = several_of("middleware", middleware, "write [Errors()]", bad_setting)
        for each in self.middleware:
            if not isinstance(each, Middleware):
                raise InvalidSettings(
                    f"middleware has {shown(each)}, which is none; derive its class from fairlead.Middleware and make "
                    f"one: [Errors()]"
                )
        self.lifespan = lifespan
        self._app = app
        self.around = tuple(each for each in self.middleware if type(each).attempt is not Middleware.attempt)
        """The middleware that has something to do around an attempt."""
        self._on_submit = tuple(each for each in self.middleware if type(each).on_submit is not Middleware.on_submit)

    def submitted(self, submission: Submission) -> Submission:
        """What is submitted in place of a submission, once each middleware has seen it."""
        for each in self._on_submit:
            try:
                submission = each.on_submit(submission)
            except Exception as error:
                blame(error, f"on_submit of the middleware {_kind(each)}")
                raise
            if not isinstance(submission, Submission):
                raise InvalidSettings(
                    f"on_submit of the middleware {_kind(each)} returned {shown(submission)}; return the submission, "
                    f"or msgspec.structs.replace(submission, …)"
                )
        return submission

    def overridden(self, overrides: Overrides) -> Resources:
        """The same with another lifespan, if that is said."""
        if self.lifespan is None or self.lifespan not in overrides:
            return self
        return Resources(self._app, overrides[self.lifespan], self.middleware)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[object]:
        """What the lifespan yields, for as long as handlers run here; None if there is no lifespan."""
        if self.lifespan is None:
            yield None
            return
        name = f"the lifespan {name_of(self.lifespan)}"
        try:
            entered = self.lifespan(self._app)
            if not hasattr(entered, "__aenter__"):
                raise InvalidSettings(
                    f"{name} returned {shown(entered)}, which cannot be entered; write @asynccontextmanager above its "
                    f"async def"
                )
            async with entered as state:
                yield state
        except Exception as error:
            blame(error, name)
            raise


def _check_lifespan(lifespan: Lifespan) -> None:
    """Raise InvalidSettings for what can be seen to be no lifespan, before any worker starts."""
    if not callable(lifespan):
        raise InvalidSettings(
            f"lifespan {shown(lifespan)} is not a function; write an @asynccontextmanager that takes the app"
        )
    name = f"the lifespan {name_of(lifespan)}"
    if inspect.isasyncgenfunction(lifespan) or inspect.iscoroutinefunction(lifespan):
        raise InvalidSettings(f"{name} cannot be entered; write @asynccontextmanager above its async def, and yield")
    try:
        inspect.signature(lifespan).bind(None)
    except TypeError as error:
        raise InvalidSettings(f"{name} cannot be called with the app: {error}; have it take one argument") from None
    except ValueError:
        # A class written in C may keep its signature to itself.
        return


NO_RESOURCES: Final = Resources()
"""Those of a handler that belongs to no app."""


def portal_to(loop: asyncio.AbstractEventLoop) -> Portal:
    """The way from other threads to an event loop that runs."""
    return lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result()


Enter: TypeAlias = Callable[[TaskContext], Any]
"""Makes a context manager for an attempt."""


def wrapped(
    function: Callable[..., Any],
    middleware: Sequence[Middleware],
    providers: Mapping[str, Callable[..., Any]],
) -> Callable[..., Any]:
    """The function to call in place of a handler's own: it enters what surrounds that, and gives it what it needs."""
    around = [_Surrounding(f"the middleware {_kind(each)}", each.attempt) for each in middleware]
    provided = [
        (name, _Surrounding(f"the provider {name_of(provider)}", _entered(provider)))
        for name, provider in providers.items()
    ]
    if inspect.iscoroutinefunction(function):

        async def run(**arguments: Any) -> Any:
            context = current_task()
            async with AsyncExitStack() as stack:
                for each in around:
                    await stack.enter_async_context(each.asynchronous(context))
                for name, each in provided:
                    arguments[name] = await stack.enter_async_context(each.asynchronous(context))
                return await function(**arguments)

        return run

    def call(**arguments: Any) -> Any:
        context = current_task()
        with ExitStack() as stack:
            for each in around:
                stack.enter_context(each.synchronous(context))
            for name, each in provided:
                arguments[name] = stack.enter_context(each.synchronous(context))
            return function(**arguments)

    return call


class _Surrounding:
    """What is entered before a handler is called, and left after it; an error of its own is noted as such."""

    def __init__(self, name: str, enter: Enter) -> None:
        self._name = name
        self._enter = enter

    def asynchronous(self, context: TaskContext) -> _Guarded:
        return _Guarded(self._name, lambda: self._entered(context))

    def synchronous(self, context: TaskContext) -> _GuardedInThread:
        return _GuardedInThread(self._name, lambda: self._entered(context), context)

    def _entered(self, context: TaskContext) -> Any:
        entered = self._enter(context)
        if not hasattr(entered, "__enter__") and not hasattr(entered, "__aenter__"):
            raise TypeError(
                f"{self._name} gave {shown(entered)}, not a context manager; write @contextmanager above it"
            )
        return entered


class _Guarded:
    """A context manager of either kind, entered by a coroutine. It swallows nothing."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name = name
        self._make = make

    async def __aenter__(self) -> Any:
        try:
            self._manager = self._make()
            if hasattr(self._manager, "__enter__"):
                return self._manager.__enter__()
            return await self._manager.__aenter__()
        except BaseException as error:
            _note(error, self._name)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        try:
            if hasattr(self._manager, "__enter__"):
                self._manager.__exit__(kind, error, frames)
            else:
                await self._manager.__aexit__(kind, error, frames)
        except BaseException as raised:
            if raised is not error:
                _note(raised, self._name)
            raise


class _GuardedInThread:
    """A context manager of either kind, entered by a thread: an asynchronous one on the event loop of its app."""

    def __init__(self, name: str, make: Callable[[], Any], context: TaskContext) -> None:
        self._name = name
        self._make = make
        self._context = context

    def __enter__(self) -> Any:
        try:
            manager = self._make()
            self._manager = manager if hasattr(manager, "__enter__") else OnLoop(manager, self._context.portal)
            return self._manager.__enter__()
        except BaseException as error:
            _note(error, self._name)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        try:
            self._manager.__exit__(kind, error, frames)
        except BaseException as raised:
            if raised is not error:
                _note(raised, self._name)
            raise


class OnLoop:
    """An asynchronous context manager, entered and left by one task of an event loop while a thread waits for each."""

    value: Any = None
    """What it gave when it was entered."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], portal: Portal) -> None:
        self._manager = manager
        self._portal = portal

    def __enter__(self) -> Any:
        if (raised := self._portal(self._begin())) is not None:
            raise raised
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        raised = self._portal(self._end(error))
        if raised is not None and raised is not error:
            raise raised

    # Errors are returned and not raised, for one such as SystemExit would take the event loop down.

    async def _begin(self) -> BaseException | None:
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[None] = loop.create_future()
        self._error: asyncio.Future[BaseException | None] = loop.create_future()
        self._holder = asyncio.create_task(self._hold())
        waits: list[asyncio.Future[Any]] = [self._entered, self._holder]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return None if self._entered.done() else self._holder.result()

    async def _end(self, error: BaseException | None) -> BaseException | None:
        self._error.set_result(error)
        return await self._holder

    async def _hold(self) -> BaseException | None:
        try:
            self.value = await self._manager.__aenter__()
            self._entered.set_result(None)
            error = await self._error
            frames = None if error is None else error.__traceback__
            await self._manager.__aexit__(None if error is None else type(error), error, frames)
        except BaseException as raised:
            return raised
        return None


def _note(error: BaseException, name: str) -> None:
    # A stopped attempt passes through whatever it was in, and is nobody's error.
    if not isinstance(error, asyncio.CancelledError):
        blame(error, name)


def _entered(provider: Callable[..., Any]) -> Enter:
    """How to enter a provider of whatever kind."""
    with_context = takes_context(provider)

    def made(context: TaskContext) -> Any:
        return provider(context) if with_context else provider()

    target = provider if inspect.isroutine(provider) else getattr(provider, "__call__", provider)  # noqa: B004
    if inspect.isasyncgenfunction(target):
        return contextlib.asynccontextmanager(made)
    if inspect.isgeneratorfunction(target):
        return contextlib.contextmanager(made)
    if inspect.iscoroutinefunction(target):
        return lambda context: _Awaited(made(context))
    return lambda context: _Made(made, context)


class _Made:
    """What a function returns, as a context manager with nothing to leave."""

    def __init__(self, made: Enter, context: TaskContext) -> None:
        self._made = made
        self._context = context

    def __enter__(self) -> Any:
        return self._made(self._context)

    def __exit__(self, *_: object) -> None: ...


class _Awaited:
    """What a coroutine function returns, as a context manager with nothing to leave."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine

    async def __aenter__(self) -> Any:
        return await self._coroutine

    async def __aexit__(self, *_: object) -> None: ...


def _kind(middleware: Middleware) -> str:
    return type(middleware).__qualname__
