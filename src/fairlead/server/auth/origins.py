"""Where a request says that it comes from, and whom it says that it calls.

A page that a person has open can make their browser call a server on the same machine. What it cannot do is lie about
its own origin, or about the name that it called: that is what is looked at here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, TypeAlias

from fairlead.core.hosts import host_of, is_loopback

Headers: TypeAlias = Mapping[bytes, bytes]
"""The headers of a request by their names in lower case."""

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""The methods that change nothing."""

_FORWARDED: Final = frozenset({
    b"x-forwarded", b"x-forwarded-by", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-path",
    b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-proto", b"x-forwarded-scheme", b"x-forwarded-server",
    b"x-forwarded-ssl", b"x-original-forwarded-for", b"x-original-host", b"x-original-url", b"x-real-ip",
    b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip", b"cf-connecting-ip", b"fastly-client-ip",
    b"x-envoy-external-address", b"x-envoy-original-path", b"forwarded", b"via",
})  # fmt: skip
"""What proxies add by which they can be told. Many add none of these unless they are told to."""


@functools.lru_cache(maxsize=1024)
def _text(header: bytes) -> str:
    return header.decode("latin-1").strip().lower()


@functools.lru_cache(maxsize=1024)
def host_in(authority: str) -> str:
    """The host of `host:port`; empty if it is none."""
    return host_of(authority.strip().lower())


def called(headers: Headers) -> str:
    """The `host:port` that the request calls, in lower case."""
    return _text(headers.get(b"host", b""))


def origin(headers: Headers) -> str | None:
    """The `host:port` of the page that makes the request; None if no page does, empty if it will not say."""
    said = headers.get(b"origin")
    if said is None:
        return None
    return _text(said).partition("://")[2]


def is_same_origin(headers: Headers) -> bool:
    """Whether no page makes the request, or one of this server's own.

    Schemes are not compared: behind a proxy that ends TLS the server does not know its own.
    """
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        return False
    page = origin(headers)
    return page is None or (page != "" and page == called(headers))


def is_neighbourly(headers: Headers) -> bool:
    """The same, or a page that was served by this machine: to a server without keys those are alike."""
    if headers.get(b"sec-fetch-site", b"none") == b"cross-site":
        return False
    page = origin(headers)
    return page is None or (page != "" and (page == called(headers) or is_loopback(host_in(page))))


def came_through_proxy(headers: Headers) -> bool:
    """Whether a proxy says that it passed the request on.

    One that says nothing cannot be told: a forwarded port, a tunnel, or a proxy whose configuration adds no header and
    calls the server by a name of loopback. For the server its requests come from this machine.
    """
    return not _FORWARDED.isdisjoint(headers)
