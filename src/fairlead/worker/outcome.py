"""The outcome of a handler's end, and its result as JSON: one door for the event loop, threads and isolated processes.

`failed` and `completed` are total: whatever was raised or returned, they return an outcome that tells it and raise
nothing. An error is an object of someone else's: its class may lie about itself, its `str()` may raise, its causes may
form a circle. So its type is read past its own attributes, each part that is told falls back to one that is safer, and
the last resort is made of constants.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final

from fairlead.core.errors import InvalidTask
from fairlead.core.events import Completed, Failed, HandedBack, Outcome
from fairlead.core.instant import SECOND, Span
from fairlead.core.retry import Retry, Snooze, derives, error_name, error_names, name_of
from fairlead.core.task import Failure
from fairlead.core.validation import delay_of, is_deeper
from fairlead.worker.context import Portal
from fairlead.worker.handlers import Handler, check_syntax, children, odd_number
from fairlead.worker.resources import blamed

_WORDS_LIMIT: Final = 3_000
_TRACE_LIMIT: Final = 20_000
"""More than is stored of each, so that what is cut off shows."""

_MOST_EFFORT: Final = 250_000_000
"""So many characters of a traceback are looked through: a message of a hundred million, but not one after another."""
_LINE_EFFORT: Final = 1_000
"""What a line takes beside its characters, as if it had so many more."""

_MOST_FRAMES: Final = 2_000
"""So many of the last calls are shown, which is more than there are before Python has had enough of a recursion."""

_MOST_LINKS: Final = 100
"""A traceback shows the causes of an error if they are no more than this."""

_UNSETTLED: Final = "OutcomeNotStorable"

_UNTOLD: Final = Failed(failure=Failure(type="UntellableError", message="the handler raised an error that resists"))

_HOME: Final = os.path.join(os.path.dirname(__file__), "")  # noqa: PTH118, PTH120 - as a file's name begins

_traceback_of: Final[Callable[[BaseException], TracebackType | None]] = vars(BaseException)["__traceback__"].__get__
_cause_of: Final[Callable[[BaseException], BaseException | None]] = vars(BaseException)["__cause__"].__get__
_parts_of: Final[Callable[[Any], tuple[BaseException, ...]]] = vars(BaseExceptionGroup)["exceptions"].__get__
_context_of: Final[Callable[[BaseException], BaseException | None]] = vars(BaseException)["__context__"].__get__


class InvalidArguments(Exception):
    """The parameters do not fit the handler, which was not called."""

    def __init__(self, reason: InvalidTask) -> None:
        super().__init__(str(reason))
        self.reason = reason


def called(
    handler: Handler, arguments: Mapping[str, Any], on_error: Callable[[BaseException], None]
) -> Completed | Failed | HandedBack:
    """How a handler ends that is called here, in a thread; MemoryError and exits too. `on_error` hears of an error."""
    try:
        return completed(handler, call(handler, arguments))
    except BaseException as error:
        on_error(error)
        return failed(handler, error)


def call(handler: Handler, arguments: Mapping[str, Any], portal: Portal = asyncio.run) -> Any:
    """What a handler returns that is called here; what traces this thread is as it was before.

    A coroutine is run by `portal`.
    """
    trace, profile = sys.gettrace(), sys.getprofile()
    try:
        if handler.is_async:
            return portal(handler.run(**arguments))
        return handler.run(**arguments)
    except StopIteration as error:
        # As Python has it for a coroutine: a task fares the same wherever its handler runs.
        raise RuntimeError("the handler raised StopIteration") from error
    finally:
        if sys.gettrace() is not trace:
            sys.settrace(trace)
        if sys.getprofile() is not profile:
            sys.setprofile(profile)


def completed(handler: Handler, returned: object) -> Completed | Failed | HandedBack:
    """The outcome of an attempt that returned this; a failure if it has no JSON form."""
    if returned is None:
        return Completed(None)
    try:
        return Completed(encode_result(handler, returned))
    except BaseException as error:
        return failed(handler, error, retriable=type(error) is not ResultNotEncodable)


def invalid_arguments(error: InvalidTask) -> Failed:
    """The outcome of a task whose parameters do not fit its handler: no other attempt can change that."""
    return Failed(failure=Failure(type="InvalidArguments", message=str(error)), retriable=False)


def failed(handler: Handler, error: BaseException, *, retriable: bool = True) -> Failed | HandedBack:
    """The outcome of an attempt that raised this error."""
    try:
        return _judged(handler, error, retriable)
    except BaseException:
        return _UNTOLD


def failure_of(error: BaseException) -> Failure:
    """What went wrong, by an error."""
    try:
        return Failure(type=name_of(type(error)), message=_words(error), traceback=_shown(error)).storable()
    except BaseException:
        return _UNTOLD.failure


def unsettled(outcome: Outcome, error: BaseException) -> Failed | None:
    """What to say instead of an outcome that cannot be stored; None if that was said already."""
    if isinstance(outcome, Failed) and outcome.failure.type == _UNSETTLED:
        return None
    message = f"the attempt ended, and how ({outcome.name}) cannot be stored: {name_of(type(error))}: {_words(error)}"
    return Failed(failure=Failure(type=_UNSETTLED, message=message).storable(), retriable=False)


def _judged(handler: Handler, error: BaseException, retriable: bool) -> Failed | HandedBack:
    # Not `error.__class__`, which a class may define as it likes.
    kind = type(error)
    if derives(kind, Snooze):
        # One whose time cannot be told would else come back at once, over and over.
        return HandedBack(_asked_after(error) or SECOND)
    if derives(kind, asyncio.CancelledError):
        # Nobody has stopped the attempt, so it was the handler, or what it waited for. Another time may be better.
        message = "the handler cancelled itself"
        return Failed(failure=Failure(type="CancelledError", message=message, traceback=_shown(error)).storable())
    failure = failure_of(error)
    if not retriable:
        return Failed(failure=failure, retriable=False)
    if derives(kind, Retry):
        # What it derives from is left out: a rule for any Exception is not meant for one that asks to be retried.
        return Failed(failure=failure, after=_asked_after(error), names=(error_name(kind),))
    return Failed(failure=failure, retriable=handler.is_retriable(error), names=error_names(kind))


def _words(error: BaseException) -> str:
    try:
        words = _cut(str(error), _WORDS_LIMIT)
        who = blamed(error)
        return words if who is None else f"{words} ({who})"
    except BaseException as raised:
        return f"its str() raised {name_of(type(raised))}"


def _shown(error: BaseException) -> str | None:
    """The traceback, with what led to the error if that can be told."""
    frames = _own_frames(error)
    try:
        shown = None if _leads_far(error) else _whole(error, frames)
        return shown or f"{_places(frames)}{_words(error)}\n(it has too many causes, parts or notes to show them)"
    except BaseException:
        return _places(frames)


def _whole(error: BaseException, frames: TracebackType | None) -> str | None:
    """All that Python shows of an error, each line cut; None if that is more than can be looked through."""
    lines: list[str] = []
    effort = 0
    for line in traceback.TracebackException(type(error), error, frames, limit=-_MOST_FRAMES).format():
        lines.append(_cut(line, _TRACE_LIMIT))
        effort += str.__len__(line) + _LINE_EFFORT
        if effort > _MOST_EFFORT:
            return None
    return "".join(lines)


def _places(frames: TracebackType | None) -> str | None:
    try:
        return "".join(traceback.format_tb(frames, limit=-_MOST_FRAMES))
    except BaseException:
        return None


def _leads_far(error: BaseException) -> bool:
    """Whether so many errors led to this one, or are its parts, that nobody would read of them all."""
    seen: dict[int, BaseException] = {id(error): error}
    waiting = [error]
    while waiting and len(seen) <= _MOST_LINKS:
        link = waiting.pop()
        parts = _parts_of(link) if derives(type(link), BaseExceptionGroup) else ()
        for each in (_cause_of(link), _context_of(link), *parts[:_MOST_LINKS]):
            if each is not None and id(each) not in seen:
                seen[id(each)] = each
                waiting.append(each)
    return len(seen) > _MOST_LINKS


def _asked_after(error: BaseException) -> Span | None:
    """When a `Retry` asks to be retried; when the backoff says, if that cannot be told from what it holds."""
    try:
        after = getattr(error, "after", None)
        return None if after is None else delay_of("after", after)
    except BaseException:
        return None


def _own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from where the handler's own code begins; all of it if that is not where it was raised."""
    whole = frames = _traceback_of(error)
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    return frames or whole


def _is_ours(frames: TracebackType) -> bool:
    # Not by the module's name, which is `__main__` in an isolated process, and anything in what a handler executes.
    return frames.tb_frame.f_code.co_filename.startswith(_HOME)


def _cut(text: str, limit: int) -> str:
    """The text as a plain string, cut: `str()` may return one whose class has methods of its own."""
    return str.__getitem__(text, slice(limit))


_MOST_DEEP: Final = 60
"""Nested deeper, a result could not be told to a server, whose bodies are 64 deep at the most."""
_PLAIN: Final = frozenset((int, str, bool))
"""What holds nothing else, and is never something raw or a number that JSON does not have."""
_DEEPEST: Final = 50
"""So many steps of a path are told."""


class ResultNotEncodable(Exception):
    """What the handler returned has no JSON form."""


def encode_result(handler: Handler, result: object) -> bytes:
    """A handler's result as JSON; None is not asked about, for it needs no bytes.

    Raises ResultNotEncodable, with the path, for what has no JSON form. A number that is not finite has none either,
    though the encoder would write `null` for it, nor has something raw that is not JSON.
    """
    try:
        encoded = handler.signature.encode_result(result)
        if type(result) in _PLAIN:
            return encoded
        check_syntax(encoded)
        odd = odd_number(result, encoded)
    except MemoryError:
        raise
    except BaseException as error:
        raise _not_encodable(handler, _fault(handler, result), _said(error)) from None
    if is_deeper(encoded, _MOST_DEEP):
        why = f"it is nested over {_MOST_DEEP} levels deep; flatten it"
        raise ResultNotEncodable(f"the result of {handler.type} cannot be stored as JSON: {why}")
    if odd is not None:
        raise _not_encodable(handler, odd[0], f"{odd[1]} is not a number that JSON has")
    return encoded


def _not_encodable(handler: Handler, path: str, why: str) -> ResultNotEncodable:
    return ResultNotEncodable(f"the result of {handler.type} has no JSON form: {why} - at `{path}`")


def _said(error: BaseException) -> str:
    try:
        return str(error) or type(error).__name__
    except BaseException:
        return "it raises an error when it is read"


def _fault(handler: Handler, result: object) -> str:
    """The path to what cannot be encoded, as far as it can be followed."""
    path, value = "$", result
    try:
        for _ in range(_DEEPEST):
            faults = ((step, child) for step, child in children(value) if not _has_json_form(handler, child))
            found = next(faults, None)
            if found is None:
                return path
            path, value = path + found[0], found[1]
    except BaseException:
        # Its class will not have it looked into.
        return path
    return f"{path}…"


def _has_json_form(handler: Handler, value: object) -> bool:
    try:
        check_syntax(handler.signature.encode_result(value))
    except BaseException:
        return False
    return True
