"""Where a store is: a URL as libpq reads it, with a few options of our own among its query parameters.

libpq reads it itself, and completes it from its environment variables, its service file and its password file.
"""

from __future__ import annotations

import re
from typing import Final

from psycopg import OperationalError, pq

from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import Masked, masked
from fairlead.storage.credentials import OPTION, Credentials
from fairlead.storage.deadline import PATIENCE
from fairlead.storage.login import Command
from fairlead.storage.url import joined, split, split_options

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_PORTS: Final = 1 << 16
_SWITCH: Final = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
_OPTIONS: Final = frozenset({"schema", "prepare", "listen", "pool", "timeout", OPTION})

_DEFAULTS: Final = {"connect_timeout": "5", "keepalives_idle": "30"}
"""What libpq is told unless it is said otherwise, in the URL or where libpq looks for more."""


class Address(Masked, frozen=True, kw_only=True):
    """A database, a schema in it, and how to talk to it."""

    conninfo: str
    """What libpq is told."""
    shown: str
    """The URL as errors may show it: without the password."""
    hidden = ("credentials",)
    credentials: Credentials | None = None
    """Asked at each new connection, instead of what the URL says."""
    schema: str = "fairlead"
    prepare: bool | None = None
    """Whether statements are prepared and sessions set up, which a pooler in transaction mode does not allow; None to
    do so unless there turns out to be a pooler."""
    listen: bool = True
    """Whether waiting uses LISTEN; off to poll only."""
    pool: int = 8
    """The most connections that calls use at once; waiting uses more of its own."""
    timeout: float = PATIENCE
    """Seconds after which a call gives up."""

    @property
    def channel(self) -> str:
        """The channel on which ready tasks are told of."""
        return f"{self.schema}_ready"


def parse(url: str) -> Address:
    """The address that a URL names; raises InvalidSettings for an option that makes no sense."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidSettings(f"store URL {masked(url)!r} does not begin with postgresql://")
    theirs, ours = split_options(url, _OPTIONS)
    return Address(
        conninfo=_conninfo(theirs),
        shown=masked(url),
        credentials=Command(ours[OPTION]) if OPTION in ours else None,
        schema=_schema(ours.get("schema", "fairlead")),
        prepare=None if ours.get("prepare", "auto").lower() == "auto" else _switch("prepare", ours["prepare"]),
        listen=_switch("listen", ours.get("listen", "on")),
        pool=int(_number("pool", ours.get("pool", "8"), least=1)),
        timeout=_number("timeout", ours.get("timeout", str(PATIENCE)), least=0.1),
    )


def _conninfo(url: str) -> str:
    """What libpq is told: a URL of its own, with our defaults. Raises InvalidSettings if it cannot read it."""
    parsed = _parsed(url)
    for port in parsed.get("port", "").split(","):
        if port and not (port.isdecimal() and 0 < int(port) < _PORTS):
            raise InvalidSettings("the store URL has an invalid port; write host:port with a number up to 65535")
    if "@" in parsed.get("host", ""):
        raise InvalidSettings("the store URL has two @ before its database; write one in a user or password as %40")
    elsewhere = {option.keyword.decode() for option in pq.Conninfo.get_defaults() if option.val is not None}
    # A service may say any of these, and only libpq knows where it is found.
    defaults = {} if "service" in parsed else {key: _DEFAULTS[key] for key in _DEFAULTS.keys() - elsewhere}
    defaults["fallback_application_name"] = "fairlead"
    beginning, options = split(url)
    return joined(beginning, [*options, *(f"{key}={defaults[key]}" for key in sorted(defaults.keys() - parsed.keys()))])


def _parsed(url: str) -> dict[str, str]:
    """What libpq reads in a URL, by its own names."""
    try:
        options = pq.Conninfo.parse(url.encode())
    except UnicodeEncodeError:
        raise InvalidSettings("the store URL cannot be read: it is not valid Unicode") from None
    except OperationalError as error:
        said = str(error).strip()
        # It quotes what it cannot read, a password too; the name of an option is none.
        if not said.startswith("invalid URI query parameter") or "@" in "".join(split(url)[1]):
            said = said.partition(': "')[0]
        raise InvalidSettings(
            f"the store URL cannot be read: {said}; write postgresql://user:password@host/database"
        ) from None
    return {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}


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
