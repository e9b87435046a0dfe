"""The options that many commands share, and the way from them to a store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from cyclopts import Parameter

from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.sdk.configuration import Configuration, load
from fairlead.sdk.connection import Connection, Link
from fairlead.sdk.keys import KEYS
from fairlead.sdk.linking import check_store, connect


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


Common: TypeAlias = Annotated[Shared, Parameter(name="*")]
CommonWithStore: TypeAlias = Annotated[SharedWithStore, Parameter(name="*")]

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
    check_store(configuration.store, configuration.journal_url)
    _check_reachable(configuration.store, create=create)
    connection = connect(
        configuration.store,
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
                f"{link.url} is a server, and this command needs the store itself; run it where the store can be "
                f"reached, with the store's own URL"
            )
        yield link


def _check_reachable(url: str, *, create: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "memory":
        raise InvalidSettings(
            f"the store {url} lives inside one process, so this command cannot reach it; use sqlite:///path/to/file.db"
        )
    if parts.scheme == "sqlite" and not create:
        file = Path(unquote(parts.path.removeprefix("/")))
        if not file.exists():
            # Looking must not leave an empty file behind in whatever folder one happens to be.
            raise StoreUnavailable(
                f"there is no store at {url}: the file {file.absolute()} does not exist; "
                f"name another with --store or FAIRLEAD_STORE, or submit a task to make it"
            )


def words(option: str | None) -> tuple[str, ...]:
    """The words of an option that takes several, separated by commas."""
    return tuple(word.strip() for word in (option or "").split(",") if word.strip())
