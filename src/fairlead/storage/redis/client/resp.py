"""One server, as the client sees it, and what goes over a connection to it: commands, replies and what errors mean."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

import hiredis
from msgspec import Struct

from fairlead.core.errors import (
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from fairlead.storage.login import Login
from fairlead.storage.redis.url import Address, Host, Tls

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


def unreachable(host: Host, trouble: Exception | str, tls: Tls | None = None) -> Broken:
    """The error of a connection that could not be made.

    `tls` is that of one that broke at its first words, when all was well as far as could be seen from here.
    """
    hint = "" if tls is None else "; the server may want a certificate of ours that it trusts: ?cert=file&key=file"
    return Broken(f"Redis at {host} cannot be reached: {trouble}{hint}", sent=False)


class Greeting(Struct, frozen=True):
    """What a server says of itself."""

    flagged: bool
    """Whether it knows script flags."""
    master: bool


def reader() -> hiredis.Reader:
    """A parser of replies; errors are returned, not raised, because a later reply may be good."""
    return hiredis.Reader(replyError=hiredis.ReplyError, protocolError=hiredis.ProtocolError)


def greet(address: Address, login: Login | None) -> tuple[bytes, int]:
    """The commands that open a connection to a server, and how many replies they get.

    With a login, that is what it is told instead of what the URL says.
    """
    hello = _hello(address.username, address.password)
    if login is not None:
        hello = _hello(login.username or address.username, login.password)
    if not address.database:
        return pack(tuple(hello)), 1
    return pack(tuple(hello)) + pack(("SELECT", address.database)), 2


def greet_sentinel(address: Address) -> tuple[bytes, int]:
    """The same to a sentinel."""
    return pack(tuple(_hello(address.sentinel_username, address.sentinel_password))), 1


def _hello(username: str | None, password: str | None) -> list[Word]:
    hello: list[Word] = ["HELLO", 2]
    if password is not None:
        hello += ["AUTH", username or "default", password]
    return [*hello, "SETNAME", "fairlead"]


def greeting(replies: Sequence[Reply]) -> Greeting:
    """What a server's replies to the greeting say; raises a store error when it refused."""
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise error_of(reply)
    facts = dict(zip(replies[0][::2], replies[0][1::2], strict=True))
    major = int(bytes(facts[b"version"]).split(b".")[0])
    return Greeting(major >= FLAGS_SINCE, facts.get(b"role", b"master") == b"master")


def tls_context(tls: Tls) -> ssl.SSLContext:
    """How to encrypt. The files are read anew for each connection, so that certificates can be replaced.

    Raises Broken when one cannot be read: while they are replaced, that may pass.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise Broken(f"the file of certificates to trust, {tls.ca}, cannot be read: {error}", sent=False) from error
    context.check_hostname = tls.verify and tls.check_name
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(tls.cert, tls.key, tls.key_password or "")
        except OSError as error:
            place = tls.cert if tls.key is None else f"{tls.cert} with the key {tls.key}"
            raise Broken(f"the certificate {place} cannot be used: {error}", sent=False) from error
    return context


SPLIT: Final = ReplyError("SPLIT a part of the slot is, or may be, at another node")
"""What is said of such a slot, in place of its node."""

_MOVING: Final = frozenset({"ASK", "TRYAGAIN", "SPLIT"})
"""Errors of a slot that is on its way from one node of a Cluster to another; they say that nothing was done."""
_PASSING: Final = frozenset({*_MOVING, "MOVED", "LOADING", "CLUSTERDOWN", "MASTERDOWN"})


def is_moving(reply: Exception) -> bool:
    """Whether this is the error of a slot that is on its way."""
    return _word(reply) in _MOVING


def is_passing(reply: Exception) -> bool:
    """Whether this is an error that ends by itself, and says that nothing was done."""
    return _word(reply) in _PASSING


def is_nobody(reply: Exception) -> bool:
    """Whether this is the error of a connection that is nobody's, or no more; it says that nothing was done."""
    return _word(reply) == "NOAUTH"


def is_replica(reply: Exception) -> bool:
    """Whether this is the error of a server that is no master, or no more."""
    text = str(reply)
    return text.startswith("READONLY") or "-READONLY" in text


def _word(reply: Exception) -> str:
    return str(reply).partition(" ")[0]


_NOT_A_STORE: Final = (
    "ERR DB index is out of range",
    "ERR invalid DB index",
    "ERR SELECT is not allowed",
    "ERR unknown command",
    "NOPROTO",
)
"""How replies begin that no repetition changes: there is no such database, or the server is none that we can use."""


def error_of(reply: Exception) -> StoreError:
    """What a server's error means to the caller."""
    text = str(reply)
    word = text.split(" ", 1)[0].lstrip("-")
    if word in {"NOAUTH", "WRONGPASS", "NOPERM"}:
        return StoreRefused(
            f"Redis does not let us in: {text}; nothing was done. Check user and password in the URL, or what gives "
            f"the credentials, and the ACL"
        )
    if text.startswith(_NOT_A_STORE):
        return StoreMismatch(
            f"Redis answered: {text}; nothing was done. Name another database or server in the store URL"
        )
    if word == "OOM" or "OOM command not allowed" in text:
        return StoreFull(
            "Redis is out of memory (maxmemory): nothing was stored; let workers drain it or raise maxmemory"
        )
    if word in {"READONLY", "MISCONF", "NOREPLICAS"} or "-READONLY" in text or "-MISCONF" in text:
        return StoreReadOnly(f"Redis takes no writes: {text}")
    if "WRONGTYPE" in text:
        return StoreMismatch(f"a key of ours holds something else: {text}; give fairlead a prefix of its own")
    return StoreUnavailable(f"Redis answered: {text}")


_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0


class Interrupted(asyncio.CancelledError):
    """An exchange was cancelled, and these replies came nevertheless."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        super().__init__()
        self.replies = replies


Release: TypeAlias = Callable[[], Awaitable[object]]
"""Has the server go on with what it holds up."""


class Node(Protocol):
    """One server and the connections to it.

    Over the blocking transport the coroutines of a node never suspend.
    """

    host: Host
    greeted: Greeting | None
    """What the server said of itself when last connected to, if it ever was."""

    async def greeting(self) -> Greeting:
        """What the server said of itself when last connected to; connects if it never was."""
        ...

    async def exchange(
        self,
        payload: bytes,
        count: int,
        *,
        timeout: float | None = None,
        alone: bool = False,
        release: Release | None = None,
    ) -> list[Reply]:
        """Send packed commands and return their replies. Raises Broken.

        With `alone`, the connection is no one else's meanwhile: for commands that make the server hold it up. With
        `release`, what was done is known even if this is cancelled: the server is released, and Interrupted raised; or
        Broken, if it does not say.
        """
        ...

    def renew(self) -> None:
        """Use the connections that there are no more, because they are nobody's by now: the next call makes another."""
        ...

    def close(self) -> None:
        """Give the connections back."""
        ...


MakeNode: TypeAlias = Callable[[Host, bool], Node]
"""Makes the node of a host; the flag says that it is a sentinel."""

Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Patience:
    """How long to leave a server alone that cannot be reached: longer each time, and never in step with others."""

    def __init__(self) -> None:
        self._failures = 0
        self._not_before = 0.0

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        return max(0.0, self._not_before - time.monotonic())

    def failed(self) -> None:
        """The server could not be reached."""
        longest = min(_FIRST_PAUSE * 2**self._failures, _LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        self._not_before = time.monotonic() + longest * (0.5 + random.random() / 2)  # noqa: S311 - jitter, no secret

    def succeeded(self) -> None:
        """The server was reached."""
        self._failures = 0
        self._not_before = 0.0
