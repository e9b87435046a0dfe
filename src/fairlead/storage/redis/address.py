"""Where a Redis store is: everything its URL says.

    redis://[user:password@]host[:port][/database]
    rediss://…                                       the same over TLS
    redis+sentinel://host[:port],…/service[/database]
    redis+cluster://host[:port],…

with the options `prefix`, `timeout`, `replicas`, and for TLS `ca` (a file) and `verify=no`.
"""

from __future__ import annotations

import enum
import re
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from fairlead.core.errors import InvalidSettings

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_OPTIONS: Final = frozenset({"prefix", "timeout", "replicas", "ca", "verify", "sentinel_password"})
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379


class Shape(enum.Enum):
    """How the servers stand together."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Host(Struct, frozen=True, order=True):
    """Where one server listens."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


class Address(Struct, frozen=True, kw_only=True):
    """Where a store is and how to talk to it."""

    shape: Shape
    hosts: tuple[Host, ...]
    service: str = ""
    """The name that the sentinels know the master by."""
    username: str | None = None
    password: str | None = None
    sentinel_password: str | None = None
    database: int = 0
    tls: bool = False
    ca: str | None = None
    verify: bool = True
    prefix: str = "fl"
    """What every key begins with, after its brace; apps with different prefixes share a server."""
    timeout: float = 5.0
    """Seconds after which a call is given up, its outcome unknown."""
    replicas: int = 0
    """How many replicas must hold a task before its submit is acknowledged."""

    def __str__(self) -> str:
        """The address as errors show it: without user and password."""
        hosts = ",".join(map(str, self.hosts))
        return f"{hosts}/{self.service}" if self.service else hosts


def parse_address(url: str) -> Address:
    """The address a store URL gives; raises InvalidSettings when it is none."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - _OPTIONS):
        raise InvalidSettings(
            f"Redis URL has the unknown option {unknown[0]!r}; the options are {', '.join(sorted(_OPTIONS))}"
        )
    match parts.scheme:
        case "redis" | "rediss":
            shape, default_port = Shape.SINGLE, _PORT
        case "redis+sentinel" | "rediss+sentinel":
            shape, default_port = Shape.SENTINEL, _SENTINEL_PORT
        case "redis+cluster" | "rediss+cluster":
            shape, default_port = Shape.CLUSTER, _PORT
        case scheme:
            raise InvalidSettings(f"{scheme!r} is not the scheme of a Redis URL; use redis:// or rediss://")
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    service, database = _path(shape, parts.path)
    return Address(
        shape=shape,
        hosts=tuple(_host(text, default_port) for text in (hosts or "localhost").split(",")),
        service=service,
        username=unquote(username) or None,
        password=unquote(password) or None,
        sentinel_password=options.get("sentinel_password"),
        database=database,
        tls=parts.scheme.startswith("rediss"),
        ca=options.get("ca"),
        verify=options.get("verify", "yes") not in {"no", "false", "0"},
        prefix=_prefix(options.get("prefix", "fl")),
        timeout=_number("timeout", options.get("timeout", "5"), 0.001),
        replicas=int(_number("replicas", options.get("replicas", "0"), 0)),
    )


def _path(shape: Shape, path: str) -> tuple[str, int]:
    """The service, for sentinels, and the database."""
    words = [word for word in path.split("/") if word]
    service = ""
    if shape is Shape.SENTINEL:
        if not words:
            raise InvalidSettings("Redis URL with sentinels names no service; write redis+sentinel://host:port/service")
        service = words.pop(0)
    database = words.pop(0) if words else "0"
    if words or not database.isdigit():
        raise InvalidSettings(f"Redis URL path {path!r} is not a database number, such as /0")
    if shape is Shape.CLUSTER and database != "0":
        raise InvalidSettings(f"Redis Cluster has only database 0, not {database}")
    return service, int(database)


def _host(text: str, default_port: int) -> Host:
    name, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        name, port = text, str(default_port)
    if not name or not port.isdigit():
        raise InvalidSettings(f"{text!r} in the Redis URL is not a host; write host:port")
    return Host(name.strip("[]"), int(port))


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise InvalidSettings(f"Redis prefix {text!r} is not 1 to 64 letters, digits and the characters _ . : -")
    return text


def _number(option: str, text: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number < 1e6:
        raise InvalidSettings(f"Redis URL option {option}={text} is not a number from {least:g} up")
    return number
