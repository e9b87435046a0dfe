"""What goes over a connection: commands, replies, the greeting, and what a server's errors mean."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import hiredis
from msgspec import Struct

from fairlead.core.errors import (
    InvalidSettings,
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreUnavailable,
)
from fairlead.storage.redis.address import Address

Reply: TypeAlias = Any
"""What a server answered: bytes, an int, None, a list of replies, or a `hiredis.ReplyError`."""

Word: TypeAlias = bytes | str | int | float

pack: Final = cast(Callable[[tuple[Word, ...]], bytes], hiredis.pack_command)
ReplyError: Final = hiredis.ReplyError
FLAGS_SINCE: Final = 7
"""The first major version that knows script flags."""


class Broken(Exception):
    """A connection was lost, or could not be made.

    `sent` says whether the server may have got the commands; if not, they certainly did not happen.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Greeting(Struct, frozen=True):
    """What a server says of itself."""

    flagged: bool
    """Whether it knows script flags."""
    master: bool


def reader() -> hiredis.Reader:
    """A parser of replies; errors are returned, not raised, because a later reply may be good."""
    return hiredis.Reader(replyError=hiredis.ReplyError, protocolError=hiredis.ProtocolError)


def greet(address: Address, *, sentinel: bool = False) -> tuple[bytes, int]:
    """The commands that open a connection, and how many replies they get."""
    hello: list[Word] = ["HELLO", 2]
    password = address.sentinel_password if sentinel else address.password
    if password is not None:
        hello += ["AUTH", (None if sentinel else address.username) or "default", password]
    hello += ["SETNAME", "fairlead"]
    if sentinel or not address.database:
        return pack(tuple(hello)), 1
    return pack(tuple(hello)) + pack(("SELECT", address.database)), 2


def greeting(replies: Sequence[Reply]) -> Greeting:
    """What a server's replies to the greeting say; raises a store error when it refused."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise error_of(reply)
    facts = dict(zip(replies[0][::2], replies[0][1::2], strict=True))
    major = int(bytes(facts[b"version"]).split(b".")[0])
    return Greeting(major >= FLAGS_SINCE, facts.get(b"role", b"master") == b"master")


def tls_context(address: Address) -> ssl.SSLContext | None:
    """How to encrypt, or None for not at all."""
    if not address.tls:
        return None
    context = ssl.create_default_context(cafile=address.ca)
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def error_of(reply: Exception) -> StoreError | InvalidSettings:
    """What a server's error means to the caller."""
    text = str(reply)
    word = text.split(" ", 1)[0].lstrip("-")
    if word in {"NOAUTH", "WRONGPASS", "NOPERM"}:
        return InvalidSettings(f"Redis refuses us: {text}; check user, password and ACL of the store URL")
    if word == "OOM" or "OOM command not allowed" in text:
        return StoreFull(
            "Redis is out of memory (maxmemory): nothing was stored; let workers drain it or raise maxmemory"
        )
    if word in {"READONLY", "MISCONF", "NOREPLICAS"} or "-READONLY" in text or "-MISCONF" in text:
        return StoreReadOnly(f"Redis takes no writes: {text}")
    if "WRONGTYPE" in text:
        return StoreMismatch(f"a key of ours holds something else: {text}; give fairlead a prefix of its own")
    return StoreUnavailable(f"Redis answered: {text}")
