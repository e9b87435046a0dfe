"""Where a Redis store is: everything its URL says.

    redis://[user:password@]host[:port][/database]
    rediss://…                                       the same over TLS
    unix://[user:password@]/path/to/socket[?db=…]    also written redis+unix://
    redis+sentinel://host[:port],…/service[/database]
    redis+cluster://host[:port],…

Options go after `?`; those of TLS are in `Tls`. What redis-py calls otherwise is understood too. No error shows more of
a URL than its host and its options' names: anything else may be a secret.
"""

from __future__ import annotations

import enum
import re
from typing import Final
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import Masked
from fairlead.core.validation import check_login
from fairlead.storage.credentials import OPTION, Credentials
from fairlead.storage.login import Command

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_PORTS: Final = 1 << 16
_SWITCH: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}

_TLS_OPTIONS: Final = frozenset({"ca", "verify", "check_name", "server_name", "cert", "key", "key_password"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})
_OPTIONS: Final = frozenset(
    {"prefix", "timeout", "replicas", "db", "username", "password", OPTION, *_TLS_OPTIONS, *_SENTINEL_OPTIONS}
)
_OF_REDIS_PY: Final = {
    "ssl_ca_certs": "ca",
    "ssl_cert_reqs": "verify",
    "ssl_check_hostname": "check_name",
    "ssl_certfile": "cert",
    "ssl_keyfile": "key",
    "ssl_password": "key_password",
}
"""What redis-py calls some options."""
_VERIFY_OF_REDIS_PY: Final = {"required": "yes", "optional": "yes", "none": "no"}
"""To a client a server's certificate is never optional."""


class Shape(enum.Enum):
    """How the servers stand together."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Host(Struct, frozen=True, order=True):
    """Where one server listens: at a port of a host, or at a socket in the file system."""

    name: str
    """The host, or the path of the socket."""
    port: int

    @property
    def is_socket(self) -> bool:
        return self.name.startswith("/")

    def __str__(self) -> str:
        if self.is_socket:
            return self.name
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class Tls(Masked, frozen=True, kw_only=True):
    """How connections are encrypted, and who is believed to be at their other end."""

    ca: str | None = None
    """A file of certificates to trust, instead of those that the system trusts."""
    verify: bool = True
    """Whether the server needs a certificate that somebody trusted vouches for."""
    check_name: bool = True
    """Whether that certificate must be for the server's name."""
    server_name: str | None = None
    """The name that it must be for, instead of the host's."""
    cert: str | None = None
    """A file with our own certificate, for a server that asks for one."""
    key: str | None = None
    """A file with its private key; None when it is in the same file."""
    key_password: str | None = None
    hidden = ("key_password",)

    def name_of(self, host: Host) -> str:
        """The name that the certificate of a server must be for."""
        return self.server_name or host.name


class Address(Masked, frozen=True, kw_only=True):
    """Where a store is and how to talk to it."""

    shape: Shape
    hosts: tuple[Host, ...]
    service: str = ""
    """The name that the sentinels know the master by."""
    username: str | None = None
    password: str | None = None
    credentials: Credentials | None = None
    """Asked at each new connection, instead of what the URL says. Sentinels have a password of their own."""
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    hidden = ("username", "password", "credentials", "sentinel_username", "sentinel_password")
    database: int = 0
    tls: Tls | None = None
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
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _SOCKETS:
        check_login("store URL", url)
    place, _, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    shape, default_port = _shape(scheme.lower())
    login, at, hosts = authority.rpartition("@")
    if not at and "@" in path:
        raise InvalidSettings("Redis URL has a / or ? before its @; write those of a user or password as %2F and %3F")
    username, _, password = login.partition(":")
    service = ""
    if scheme.lower() in _SOCKETS:
        found, database = [_socket(hosts, slash + path)], ""
    else:
        service, database = _path(shape, path)
        found = [_host(text, default_port) for text in (hosts or "localhost").split(",")]
    options = _options(query)
    encrypted = scheme.lower().startswith("rediss")
    _check_fitting(options, encrypted, shape)
    return Address(
        shape=shape,
        hosts=tuple(found),
        service=service,
        username=unquote(username) or options.get("username"),
        password=unquote(password) or options.get("password"),
        credentials=Command(options[OPTION]) if OPTION in options else None,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        database=_database(shape, database, options.get("db", "")),
        tls=_tls(options) if encrypted else None,
        prefix=_prefix(options.get("prefix", "fl")),
        timeout=_number("timeout", options.get("timeout", "5"), 0.001),
        replicas=int(_number("replicas", options.get("replicas", "0"), 0)),
    )


_SOCKETS: Final = frozenset({"unix", "redis+unix"})


def _shape(scheme: str) -> tuple[Shape, int]:
    match scheme:
        case "redis" | "rediss" | "unix" | "redis+unix":
            return Shape.SINGLE, _PORT
        case "redis+sentinel" | "rediss+sentinel":
            return Shape.SENTINEL, _SENTINEL_PORT
        case "redis+cluster" | "rediss+cluster":
            return Shape.CLUSTER, _PORT
        case _:
            raise InvalidSettings(f"{scheme!r} is not the scheme of a Redis URL; use redis://, rediss:// or unix://")


def _options(query: str) -> dict[str, str]:
    """The options by our names."""
    options: dict[str, str] = {}
    for written, value in parse_qsl(query, keep_blank_values=True):
        name = _OF_REDIS_PY.get(written, written)
        if name not in _OPTIONS:
            shown = repr(written) if written.isidentifier() else "(not shown)"
            raise InvalidSettings(
                f"Redis URL has the unknown option {shown}; the options are {', '.join(sorted(_OPTIONS))}"
            )
        if name in options:
            raise InvalidSettings(f"Redis URL has the option {name} twice; leave one of them out")
        options[name] = _VERIFY_OF_REDIS_PY.get(value, value) if written == "ssl_cert_reqs" else value
    return options


def _check_fitting(options: dict[str, str], encrypted: bool, shape: Shape) -> None:
    """Raise InvalidSettings for an option that would be of no effect: whoever writes it believes that it has one."""
    if not encrypted and (needless := sorted(_TLS_OPTIONS & options.keys())):
        raise InvalidSettings(f"Redis URL has the option {needless[0]}, which is for TLS; begin it with rediss")
    if shape is not Shape.SENTINEL and (needless := sorted(_SENTINEL_OPTIONS & options.keys())):
        raise InvalidSettings(f"Redis URL has the option {needless[0]}, and no sentinels; use redis+sentinel://")


def _tls(options: dict[str, str]) -> Tls:
    cert, key = options.get("cert"), options.get("key")
    if cert is None and (key is not None or "key_password" in options):
        raise InvalidSettings("Redis URL has a key without a certificate; name its file with the option cert")
    return Tls(
        ca=options.get("ca"),
        verify=_switch("verify", options.get("verify", "yes")),
        check_name=_switch("check_name", options.get("check_name", "yes")),
        server_name=options.get("server_name") or None,
        cert=cert,
        key=key,
        key_password=options.get("key_password"),
    )


def _path(shape: Shape, path: str) -> tuple[str, str]:
    """The service, for sentinels, and the database, if it is said."""
    words = [word for word in path.split("/") if word]
    service = ""
    if shape is Shape.SENTINEL:
        if not words:
            raise InvalidSettings("Redis URL with sentinels names no service; write redis+sentinel://host:port/service")
        service = words.pop(0)
    if len(words) > 1:
        raise InvalidSettings(f"Redis URL path {path!r} is not a database number; use one such as /0")
    return unquote(service), words.pop(0) if words else ""


def _database(shape: Shape, in_path: str, in_options: str) -> int:
    database = in_path or in_options or "0"
    if not database.isdecimal() or in_options not in ("", database):
        raise InvalidSettings("Redis URL does not name one database; write its number, as in redis://host/0")
    if shape is Shape.CLUSTER and int(database) != 0:
        raise InvalidSettings(f"Redis Cluster has only database 0, not {database}")
    return int(database)


def _socket(hosts: str, path: str) -> Host:
    if hosts or len(path) < 2:
        raise InvalidSettings(
            "the Redis URL of a socket names its whole path after three slashes: unix:///run/redis.sock"
        )
    return Host(unquote(path), 0)


def _host(text: str, default_port: int) -> Host:
    name, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        name, port = text, str(default_port)
    if not name or not port.isdecimal() or not 0 < int(port) < _PORTS or (":" in name and name[0] + name[-1] != "[]"):
        # Not shown: without an @ it is the user and the password that stand here.
        raise InvalidSettings("the Redis URL has an invalid host; write host:port, or [address]:port")
    return Host(unquote(name.strip("[]")), int(port))


def _prefix(text: str) -> str:
    if not _PREFIX.fullmatch(text):
        raise InvalidSettings(f"Redis prefix {text!r} is not 1 to 64 letters, digits and the characters _ . : -")
    return text


def _switch(option: str, word: str) -> bool:
    try:
        return _SWITCH[word.lower()]
    except KeyError:
        raise InvalidSettings(f"Redis URL option {option}={word} is neither yes nor no") from None


def _number(option: str, text: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number < 1e6:
        raise InvalidSettings(f"Redis URL option {option}={text} is not a number from {least:g} up")
    return number
