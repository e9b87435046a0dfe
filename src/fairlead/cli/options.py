"""The options that many commands share, settings as flags among them, and the way from them to a store."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from cyclopts import Parameter, Token

from fairlead.app.config import Configuration, load
from fairlead.app.config_keys import KEYS
from fairlead.app.connection import Connection, Link, check_store, connect
from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.core.secret_mask import masked


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What every command takes."""

    json: Annotated[bool, Parameter(help="Write JSON, for scripts.")] = False
    config: Annotated[
        str | None, Parameter(help="Read this file instead of fairlead.toml. *FAIRLEAD_CONFIG*", metavar="FILE")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SharedWithStore(Shared):
    """What every command takes that uses a store."""

    store: Annotated[
        str | None,
        Parameter(
            help="URL of the store, or of a server. *FAIRLEAD_STORE*, fairlead.toml, or sqlite:///fairlead.db",
            metavar="URL",
        ),
    ] = None
    journal: Annotated[
        str | None, Parameter(help="URL of the journal behind a Redis store. *FAIRLEAD_JOURNAL*", metavar="URL")
    ] = None


PLAIN: Final = Parameter(negative=(), show_default=False)
"""What all options have in common: no second one that undoes it, and their defaults are told in words."""

Common: TypeAlias = Annotated[Shared, Parameter(name="*")]
CommonWithStore: TypeAlias = Annotated[SharedWithStore, Parameter(name="*")]

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")

COMMON: Final = Shared()
COMMON_WITH_STORE: Final = SharedWithStore()


def configured(common: Shared, flags: Mapping[str, object] | None = None) -> Configuration:
    """The configuration, with these flags before all else."""
    store, journal = (common.store, common.journal) if isinstance(common, SharedWithStore) else (None, None)
    return load({"config": common.config, "store": store, "journal": journal, **(flags or {})})


def export(common: SharedWithStore, flags: Mapping[str, object]) -> None:
    """Make variables of the flags, so that whatever this process loads or starts is configured alike."""
    for name, value in {"store": common.store, "journal": common.journal, **flags}.items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            os.environ[KEYS[name.replace("-", "_").replace(".", "_")].variable] = text
    if common.config is not None:
        os.environ["FAIRLEAD_CONFIG"] = str(Path(common.config).absolute())


@contextlib.contextmanager
def reached(common: SharedWithStore, *, create: bool = False) -> Iterator[Link]:
    """The way to the tasks, for a command that then ends, be they in a store or behind a server.

    Only with `create` is a store made where there is none.
    """
    configuration = configured(common)
    check_store(configuration.store_url, configuration.journal_url)
    _check_reachable(configuration.store, create=create)
    connection = connect(
        configuration.store_url,
        configuration.engine_settings(),
        journal=configuration.journal_url,
        api_key=configuration.api_key,
    )
    try:
        yield connection
    finally:
        connection.close_inline()


@contextlib.contextmanager
def connected(common: SharedWithStore, *, create: bool = False) -> Iterator[Connection]:
    """The way to the store itself, for a command that needs more than a server offers."""
    with reached(common, create=create) as link:
        if not isinstance(link, Connection):
            raise InvalidSettings(
                f"{masked(link.url)} is a server, and this command needs the store itself; run it where the store can "
                f"be reached, with the store's own URL"
            )
        yield link


def _check_reachable(url: str, *, create: bool) -> None:
    if url.startswith("memory:"):
        raise InvalidSettings(
            f"the store {masked(url)} lives inside one process, so this command cannot reach it; "
            f"use sqlite:///path/to/file.db"
        )
    if url.startswith("sqlite:") and not create:
        file = Path(unquote(urlsplit(url).path.removeprefix("/")))
        if not file.exists():
            # Looking must not leave an empty file behind in whatever folder one happens to be.
            raise StoreUnavailable(
                f"there is no store at {masked(url)}: the file {file.absolute()} does not exist; "
                f"name another with --store or FAIRLEAD_STORE, or submit a task to make it"
            )


def whole(kind: Any, tokens: Sequence[Token]) -> int:
    """The whole number that is written; what is none is refused rather than rounded."""
    del kind
    (token,) = tokens
    if not _WHOLE.fullmatch(token.value):
        raise ValueError(f"{token.value!r} is not a whole number; write one without a point")
    return int(token.value)


def words(option: str | None) -> tuple[str, ...]:
    """The words of an option that takes several, separated by commas."""
    return tuple(word.strip() for word in (option or "").split(",") if word.strip())


Text: TypeAlias = str | None
"""A setting's value as it was written; the configuration converts it, with the same errors as for a variable."""


def _flag(key: str, metavar: str) -> Parameter:
    known = KEYS[key]
    return Parameter(help=f"{known.doc}. *{known.variable}*", metavar=metavar)


QUEUES: Final = _flag("queues", "A,B")
CAPABILITIES: Final = _flag("capabilities", "A,B")
CONCURRENCY: Final = _flag("concurrency", "N")
THREAD_CONCURRENCY: Final = _flag("thread_concurrency", "N")
ISOLATED_CONCURRENCY: Final = _flag("isolated_concurrency", "N")
PROCESSES: Final = _flag("processes", "N")
DRAIN_SECONDS: Final = _flag("drain_seconds", "S")
HOST: Final = _flag("host", "ADDRESS")
PORT: Final = _flag("port", "N")
ROOT_PATH: Final = _flag("root_path", "PATH")
TRUSTED_PROXIES: Final = _flag("trusted_proxies", "A,B")
METRICS_PORT: Final = _flag("metrics_port", "N")
LOG_LEVEL: Final = _flag("log_level", "LEVEL")

AnySetting: TypeAlias = Annotated[
    str,
    Parameter(
        help="Any other setting as a flag, such as --lease-seconds 60; `fairlead config` lists them.", show=False
    ),
]

TAKING_ANY: Final = frozenset({"up", "worker", "serve", "config"})
"""The commands that take any setting as a flag."""

_SWITCHES: Final = frozenset(key.flag for key in KEYS.values() if isinstance(key.default, bool))


def switched_on(arguments: Sequence[str]) -> list[str]:
    """The arguments with a value for each switch that was given without one: `--admission` means `--admission=true`."""
    if not arguments or arguments[0] not in TAKING_ANY:
        return list(arguments)
    return [
        f"{word}=true" if word in _SWITCHES and after.startswith("-") else word
        for word, after in itertools.pairwise([*arguments, "-"])
    ]
