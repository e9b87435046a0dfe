"""Reading and decoding bodies: bounded, timed, and strict where JSON is lax."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec
from starlette.types import Receive, Scope

from fairlead.core.errors import InvalidTask
from fairlead.core.validation import is_deeper
from fairlead.server.http.problems import Refusal, invalid_value, refusal_of
from fairlead.server.http.response import direct_of
from fairlead.wire.aliases import heard

Answer = TypeVar("Answer")


class DeadlinePassed(Exception):
    """There was no answer in time."""


class Deadlines:
    """The deadlines of the tasks of one event loop, of which each has one at a time.

    One timer looks after all of them: a timeout of its own for each would cost more than most of what it is for. So a
    deadline may be noticed one interval late.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, answer: Awaitable[Answer], seconds: float) -> Answer:
        """An answer that is there after so many seconds; raises Late."""
        task = self.begin(time.monotonic() + seconds)
        try:
            return await answer
        except asyncio.CancelledError:
            if not self.is_late(task):
                raise
            task.uncancel()
            raise DeadlinePassed from None
        finally:
            self.end(task)

    def begin(self, end: float) -> asyncio.Task[Any]:
        """Cancel the running task at a moment of `time.monotonic`, unless it comes to its `end` before."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline is that of a task")
        self._ends[task] = end
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._look)
        return task

    def is_late(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task was cancelled because its deadline was over."""
        return task in self._late

    def end(self, task: asyncio.Task[Any]) -> None:
        """Have a task no deadline any more."""
        del self._ends[task]
        self._late.discard(task)

    def _look(self) -> None:
        """Cancel what is late, and look again as long as there is something to look at."""
        loop = asyncio.get_running_loop()
        now = time.monotonic()
        for task, end in self._ends.items():
            if end <= now and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._timer = loop.call_later(self._interval, self._look) if self._ends else None


JSON: Final = b"application/json"
_LONGEST_LENGTH: Final = 15
"""Digits of a length that need not be looked at to be too large."""

LARGE: Final = 32 * 1024
"""Bodies over this many bytes are looked at in a thread, so that one cannot hold up the others."""

MOST_DEEP: Final = 64
"""How many objects and lists may be inside each other."""


class Disconnected(Exception):
    """The caller left before its request was complete; there is nobody to answer."""


class BodyReader:
    """Reads bodies: no more than a limit, and no longer than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadlines = Deadlines(seconds / 4)

    async def read(self, scope: Scope, receive: Receive, limit: int) -> bytes:
        """The whole body; refused when it is over the limit or takes too long."""
        for name, value in scope["headers"]:
            if name == b"content-length":
                if len(value) > _LONGEST_LENGTH or int(value) > limit:
                    raise _too_large(limit)
            elif name == b"content-type" and value != JSON and not is_json(value):
                raise _other_media(value)
        direct = direct_of(scope)
        if direct is not None and (body := direct.body()) is not None:
            if len(body) > limit:
                raise _too_large(limit)
            return body
        try:
            return await self._deadlines.keep(_whole(receive, limit), self._seconds)
        except DeadlinePassed:
            raise _slow(self._seconds) from None


async def _whole(receive: Receive, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        return body
    chunks: list[bytes] = []
    size = 0
    while message["type"] != "http.disconnect":
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()
    raise Disconnected


def _too_large(limit: int) -> Refusal:
    return Refusal(
        "too-large",
        f"the body is over the limit of {limit:,} bytes; send less at once, or pass a reference to the data",
        remedy="send less at once, or pass a reference to the data",
    )


def is_json(media_type: bytes) -> bool:
    """Whether a content type is JSON in UTF-8, however it is written."""
    kind, _, parameters = media_type.lower().partition(b";")
    parameters = parameters.replace(b" ", b"").replace(b'"', b"")
    return kind.strip() == JSON and (b"charset=" not in parameters or b"charset=utf-8" in parameters)


def _other_media(media_type: bytes) -> Refusal:
    said = media_type[:100].decode("latin-1")
    return Refusal(
        "unsupported-media-type",
        f"content-type {said!r} is not supported; send application/json in UTF-8",
        field="content-type",
        value=said,
        remedy="send application/json in UTF-8",
    )


def _slow(seconds: float) -> Refusal:
    return Refusal("slow-body", f"the body did not arrive within {seconds:g} s; send it faster")


class Decoder:
    """Decodes the JSON body of one endpoint."""

    def __init__(self, shape: Any, *, optional: bool = False) -> None:
        self._shape = shape
        self._optional = optional
        self._decode = msgspec.json.Decoder(shape).decode

    async def __call__(self, body: bytes) -> Any:
        """The body as the shape; refused when it is not JSON, not of the shape, or ambiguous."""
        return (await self.read(body))[0]

    async def read(self, body: bytes) -> tuple[Any, tuple[str, ...]]:
        """The same, and the fields that were passed over."""
        if len(body) > LARGE:
            return await asyncio.to_thread(self._read, body)
        return self._read(body)

    def checked(self, body: bytes) -> Any:
        """The body as the shape, at once."""
        return self._read(body)[0]

    def _read(self, body: bytes) -> tuple[Any, tuple[str, ...]]:
        if not body and self._optional:
            body = b"{}"
        ignored: tuple[str, ...] = ()
        try:
            try:
                decoded = self._decode(body)
            except msgspec.ValidationError as error:
                decoded, ignored = self._heard(body, error)
            tree = _DECODE_ANY(body)
        except msgspec.ValidationError as error:
            raise invalid_value(error, shape=self._shape, tree=_tree(body)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal("invalid-json", f"the body is not valid JSON: {error}") from None
        except RecursionError:
            raise _too_deep() from None
        if is_deeper(body, MOST_DEEP):
            raise _too_deep()
        check_unambiguous(body, tree)
        return decoded, ignored

    def _heard(self, body: bytes, error: msgspec.ValidationError) -> tuple[Any, tuple[str, ...]]:
        """A body that has not the shape as it is said, if it has as it is meant."""
        try:
            meant = heard(body, self._shape)
        except InvalidTask as clash:
            raise refusal_of(clash) from None
        if meant is None:
            raise invalid_value(error, shape=self._shape, tree=_tree(body)) from None
        try:
            return self._decode(meant.body), meant.ignored
        except msgspec.ValidationError as still:
            raise invalid_value(still, shape=self._shape, tree=_tree(meant.body)) from None


_DECODE_ANY = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode


def _tree(body: bytes) -> object:
    """What is in a body that has the wrong shape, to tell of it; nothing if that cannot be read either."""
    try:
        return _DECODE_ANY(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def check_depth(body: bytes) -> None:
    """Refuse a body that is nested so deeply that some reader of it may give up, or worse."""
    if is_deeper(body, MOST_DEEP):
        raise _too_deep()


def _too_deep() -> Refusal:
    return Refusal("invalid-json", f"the body is nested too deeply, over {MOST_DEEP} levels; flatten it")


def check_unambiguous(body: bytes, tree: object) -> None:
    """Refuse a body in which an object names a key twice: which one counts differs from reader to reader.

    Every key has a colon behind it, so a key that was lost in decoding is a colon less when the tree is encoded again.
    Only where the numbers of colons differ, or one may be hidden in an escape, is the body read again, slowly.
    """
    if body.count(b":") == _ENCODE(tree).count(b":") and b"\\u003" not in body:
        return
    try:
        # Numbers stay text: Python refuses to read very long ones.
        json.loads(body, object_pairs_hook=_distinct, parse_int=str, parse_float=str)
    except RecursionError:
        raise _too_deep() from None


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        times = Counter(name for name, _ in pairs)
        twice = next(name for name in times if times[name] > 1)
        raise Refusal(
            "invalid-json",
            f"the body has the key {twice[:100]!r} twice in one object; keep one of them",
            field=twice[:100],
            remedy="keep one of them",
        )
    return members
