"""Reading and decoding bodies: bounded, timed, and strict where JSON is lax."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope

from fairlead.server.direct import direct_of
from fairlead.server.refusals import Refusal, invalid_value

JSON: Final = b"application/json"
_LONGEST_LENGTH: Final = 15
"""Digits of a length that need not be looked at to be too large."""

LARGE: Final = 64 * 1024
"""Bodies over this many bytes are looked at in a thread, so that one cannot hold up the others."""


class Disconnected(Exception):
    """The caller left before its request was complete; there is nobody to answer."""


class Reader:
    """Reads bodies: no more than a limit, and no longer than so many seconds.

    One timer looks after all of them. A timeout of its own for every body would cost more than reading it: nearly all
    have arrived, whole, when they are asked for.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reading: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

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
        return await self._receive(receive, limit)

    async def _receive(self, receive: Receive, limit: int) -> bytes:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("bodies are read in the task of their request")
        loop = asyncio.get_running_loop()
        self._reading[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds / 4, self._look)
        try:
            return await _whole(receive, limit)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            raise _slow(self._seconds) from None
        finally:
            del self._reading[task]
            self._late.discard(task)

    def _look(self) -> None:
        """Cancel what is late, and look again as long as there is something to look at."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task, deadline in self._reading.items():
            if deadline <= now and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._timer = loop.call_later(self._seconds / 4, self._look) if self._reading else None


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
        f"content-type {said!r} is not read here; send application/json in UTF-8",
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
        if len(body) > LARGE:
            return await asyncio.to_thread(self.checked, body)
        return self.checked(body)

    def checked(self, body: bytes) -> Any:
        """The same, at once."""
        if not body and self._optional:
            body = b"{}"
        try:
            decoded = self._decode(body)
            tree = _DECODE_ANY(body)
        except msgspec.ValidationError as error:
            raise invalid_value(error, shape=self._shape, tree=_tree(body)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal("invalid-json", f"the body is not valid JSON: {error}") from None
        except RecursionError:
            raise Refusal("invalid-json", "the body is nested too deeply; flatten it") from None
        check_unambiguous(body, tree)
        return decoded


_DECODE_ANY = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode


def _tree(body: bytes) -> object:
    """What is in a body that has the wrong shape, to tell of it; nothing if that cannot be read either."""
    try:
        return _DECODE_ANY(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


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
        raise Refusal("invalid-json", "the body is nested too deeply; flatten it") from None


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(
            "invalid-json",
            f"the body names {twice[:100]!r} twice in one object; name it once",
            field=twice[:100],
            remedy="name it once",
        )
    return members
