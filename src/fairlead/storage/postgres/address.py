"""Where a store is: a libpq URL, with a few options of our own among its query parameters."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from fairlead.core.errors import InvalidSettings

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_SWITCH: Final = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


class Address(Struct, frozen=True, kw_only=True):
    """A database, a schema in it, and how to talk to it."""

    conninfo: str
    """What libpq is told."""
    shown: str
    """The URL as errors may show it: without the password."""
    schema: str = "fairlead"
    prepare: bool = True
    """Whether statements are prepared and sessions set up; off behind PgBouncer in transaction mode."""
    listen: bool = True
    """Whether waiting uses LISTEN; off to poll only."""
    pool: int = 8
    """The most connections that calls use at once; waiting uses more of its own."""
    timeout: float = 15.0
    """Seconds after which a call gives up."""

    @property
    def channel(self) -> str:
        """The channel on which ready tasks are told of."""
        return f"{self.schema}_ready"


def parse(url: str) -> Address:
    """The address that a URL names; raises InvalidSettings for an option that makes no sense."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise InvalidSettings(f"store URL {_hidden(url)!r} does not begin with postgresql://")
    theirs: list[tuple[str, str]] = []
    ours: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in {"schema", "prepare", "listen", "pool", "timeout"}:
            ours[name] = value
        else:
            theirs.append((name, value))
    names = {name for name, _ in theirs}
    for name, value in (("application_name", "fairlead"), ("connect_timeout", "5"), ("keepalives_idle", "30")):
        if name not in names:
            theirs.append((name, value))
    conninfo = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(theirs, quote_via=quote), ""))
    return Address(
        conninfo=conninfo,
        shown=_hidden(url),
        schema=_schema(ours.get("schema", "fairlead")),
        prepare=_switch("prepare", ours.get("prepare", "on")),
        listen=_switch("listen", ours.get("listen", "on")),
        pool=int(_number("pool", ours.get("pool", "8"), least=1)),
        timeout=_number("timeout", ours.get("timeout", "15"), least=0.1),
    )


def _hidden(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.split(':')[0]}:***@{place}"))


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name):
        raise InvalidSettings(f"schema {name!r} is not a valid name; use 1 to 40 of a-z, 0-9 and _, not a digit first")
    return name


def _switch(option: str, word: str) -> bool:
    try:
        return _SWITCH[word.lower()]
    except KeyError:
        raise InvalidSettings(f"{option}={word} in the store URL is neither on nor off") from None


def _number(option: str, word: str, *, least: float) -> float:
    try:
        number = float(word)
    except ValueError:
        raise InvalidSettings(f"{option}={word} in the store URL is not a number") from None
    if not least <= number < 1e6:
        raise InvalidSettings(f"{option}={word} in the store URL is out of range; use {least:g} or more")
    return number
