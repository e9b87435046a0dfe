"""Whether this is still the process in which an attempt began.

A handler may fork. What its child does there is the handler's business; but a child that comes out of the handler would
go on as a second worker, or as a second isolated process on the same connection, and say everything twice. So whoever
has run a piece of a handler asks here, and a child leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import threading
import types
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, NoReturn, TypeVar, final

Result = TypeVar("Result")

forks = 0
"""How many times a process was forked on the way to this one, from Python."""

process = os.getpid()
"""This process, unless it was forked otherwise than from Python: a library may ask the kernel itself."""

_heard: dict[signal.Signals, Any] = {}
"""How this process hears SIGTERM and SIGINT, if that is its own way and not a child's."""

_wakeup = -1

_undone: list[object] = []
"""In a child, what was ready on the event loop of its parent."""


def hear_signals(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Take note of how this process hears signals now: `hear_again` restores it, and children do not inherit it.

    Nor do they inherit the event loop, which runs in this thread.

    Otherwise a child that is asked to end would tell the event loop of its parent, over what they share, and go on.
    """
    global _loop, _wakeup
    _loop = None if loop is None else (loop, threading.get_ident())
    _heard.update({number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)})
    _wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)


def hear_again() -> None:
    """Hear signals as noted, whatever a handler has made of them. Only where `hear_signals` was called."""
    if not _heard or threading.current_thread() is not threading.main_thread():
        return
    for number, handler in _heard.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    try:
        # What it is can only be known by setting it.
        signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)
    except (OSError, ValueError):
        # The event loop that heard them has ended: there is nothing to go back to.
        hear_no_more()


def hear_no_more() -> None:
    """Forget how signals were heard: the event loop that heard them is about to end."""
    global _loop
    _loop = None
    _heard.clear()


_loop: tuple[asyncio.AbstractEventLoop, int] | None = None
"""The event loop that runs attempts, and its thread."""


def _forked() -> None:
    global forks, process
    forks += 1
    process = os.getpid()
    if _loop is not None and _loop[1] == threading.get_ident():
        _end_with_this_step(_loop[0])
    if _heard:
        _heard.clear()
        with contextlib.suppress(ValueError, OSError):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_with_this_step(loop: asyncio.AbstractEventLoop) -> None:
    """Have a child that comes back to the event loop leave there, and neither hear nor say anything on it until then.

    It may have been forked in a callback, or in a task that a handler has started, where nobody looks. What it hears
    it would take from its parent. What else was ready in this turn it would do as well as its parent, and say it a
    second time on the same connections: then each answer would be taken for the one before it.
    """
    with contextlib.suppress(Exception):
        # Neither has a public way to it.
        selector: Any = getattr(loop, "_selector", None)
        heard = loop._get_backend_id() if selector is None else selector.fileno()  # type: ignore[attr-defined]
        with select.epoll() as silence:
            os.dup2(silence.fileno(), heard, inheritable=False)
    if (ready := _ready_on(loop)) is not None:
        # Kept, or tasks would complain that they were never done.
        _undone.extend(ready)
        ready.clear()
    with contextlib.suppress(RuntimeError):
        loop.call_soon(leave)


def _ready_on(loop: asyncio.AbstractEventLoop) -> deque[object] | None:
    """What an event loop is about to call."""
    ready = getattr(loop, "_ready", None)
    if ready is None:
        # uvloop has the same, and shows it to the garbage collector alone.
        ready = next((each for each in gc.get_referents(loop) if type(each) is deque), None)
    return ready if type(ready) is deque else None


# A counter that a fork moves costs nothing to look at, and stands for the child of a child as well. What is forked past
# Python does not move it; that only the kernel can tell.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@final
class Birthplace:
    """The process in which this was made."""

    __slots__ = ("_forks",)

    def __init__(self) -> None:
        self._forks = forks

    def stay(self) -> None:
        """Return if this is that process; any other one leaves at once."""
        if self._forks != forks:
            leave()
        stay()


def stay() -> None:
    """Return if this process was not forked otherwise than from Python; if it was, leave. Asks the kernel."""
    if os.getpid() != process:
        leave()


def leave() -> NoReturn:
    """End this process, and nothing that it shares with its parent."""
    os._exit(0)


@types.coroutine
def rest(coroutine: Coroutine[Any, Any, Result], waits_for: object, forks_before: int) -> Generator[Any, Any, Result]:
    """The rest of a coroutine whose first step has ended at what it waits for.

    None of its steps is left in a child of the process that was forked so many times. Who awaits this looks itself when
    it has ended: most coroutines end with their first step, and need nothing but that look.
    """
    while True:
        if forks_before != forks:
            leave()
        stay()
        sent: object = None
        raised: BaseException | None = None
        try:
            sent = yield waits_for
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            raised = error
        try:
            waits_for = coroutine.send(sent) if raised is None else coroutine.throw(raised)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            # It knows this frame, which is not to know it in turn.
            del raised
