"""The schema: bringing it up to date, and refusing one that is not.

Migrations are numbered files that only go forward. A database without the schema is set up when a store is opened; one
whose schema is behind is left alone until someone runs `fairlead migrate`, because other processes may still run the
older code.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

import psycopg

from fairlead.core.errors import StoreMismatch
from fairlead.storage.postgres.connection.connect import LimitedConnection, limit, named, open_connection
from fairlead.storage.postgres.connection.session import Session
from fairlead.storage.postgres.statements import Statement
from fairlead.storage.postgres.url import Address, parse

_OLDEST_SERVER: Final = 130000
_MIGRATION_TIMEOUT: Final = "10min"
_PACKAGE: Final = "fairlead.storage.postgres"
"""Whose migrations they are, unless said otherwise: the journal has its own."""


def migrate(url: str) -> list[str]:
    """Bring the schema at this URL up to date; the answer names the migrations that were applied."""
    return migrate_at(parse(url))


def migrate_at(address: Address, package: str = _PACKAGE) -> list[str]:
    """The same at an address, with the migrations of a package."""
    try:
        with _connect(address) as connection:
            return _migrate(connection, address, package)
    except psycopg.Error as error:
        raise named(error, address) from error


def ensure(address: Address, package: str = _PACKAGE) -> None:
    """Set up an empty database; raise StoreMismatch unless the schema is the one that this code knows."""
    try:
        with _connect(address) as connection:
            version = _version(connection, address)
            if version is None:
                _migrate(connection, address, package)
            else:
                _check(version, address, package)
    except psycopg.Error as error:
        raise named(error, address) from error


async def is_current(session: Session, address: Address) -> bool:
    """Whether the schema is the one that this code knows, asked on a session that is there anyway."""
    try:
        count = Statement(f'SELECT count(*) FROM "{address.schema}".migration', prepared=False)  # noqa: S608
        ((version,),) = await session.fetch(count)
    except StoreMismatch:
        return False
    return int(version) == len(migrations())


def pending(url: str) -> list[str]:
    """The migrations that `migrate` would apply."""
    address = parse(url)
    try:
        with _connect(address) as connection:
            return [name for name, _ in migrations()[_version(connection, address) or 0 :]]
    except psycopg.Error as error:
        raise named(error, address) from error


@cache
def migrations(package: str = _PACKAGE) -> tuple[tuple[str, str], ...]:
    """Name and text of each migration, in order; the n-th leads to version n."""
    folder = resources.files(package) / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple((file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in files)


def _connect(address: Address) -> LimitedConnection:
    """A connection to a server that says which it is, each step within the time of the call, if it has any."""
    connection = open_connection(address)
    connection.limit = limit(address)
    if connection.info.server_version < _OLDEST_SERVER:
        connection.close()
        raise StoreMismatch(f"{address.shown} is older than PostgreSQL 13; use a newer server")
    return connection


def _version(connection: LimitedConnection, address: Address) -> int | None:
    """The version of the schema; None when there is none."""
    # Not to_regclass: a session that has looked before would not see what another made while it waited for the lock.
    found = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'migration'",
        (address.schema,),
    ).fetchone()
    if found is None:
        return None
    row = connection.execute(f'SELECT count(*) FROM "{address.schema}".migration').fetchone()  # noqa: S608
    return int(str(row[0])) if row else 0


def _check(version: int, address: Address, package: str) -> None:
    newest = len(migrations(package))
    place = f"schema {address.schema} of {address.shown}"
    if version < newest:
        raise StoreMismatch(f"{place} has version {version} and this fairlead needs {newest}; run `fairlead migrate`")
    if version > newest:
        raise StoreMismatch(f"{place} has version {version} and this fairlead knows {newest}; upgrade fairlead")


def _migrate(connection: LimitedConnection, address: Address, package: str) -> list[str]:
    applied: list[str] = []
    schema = f'"{address.schema}"'
    # It takes as long as it takes, and may wait for others who do the same.
    connection.limit = None
    with connection.transaction():
        connection.execute(f"SET LOCAL statement_timeout = '{_MIGRATION_TIMEOUT}'")
        # Several processes may start at once on an empty database: one sets it up, the others wait and find it done.
        lock = "SELECT pg_advisory_xact_lock(hashtext('fairlead migrate'), hashtext(%s))"
        connection.execute(lock, (address.schema,))
        version = _version(connection, address)
        if version is None:
            # Creating one that exists would need a right that its owner may not have given us.
            if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (address.schema,)).fetchone():
                connection.execute(f"CREATE SCHEMA {schema}")
            connection.execute(
                f"CREATE TABLE {schema}.migration (version int PRIMARY KEY, name text NOT NULL, "
                f"applied_at timestamptz NOT NULL DEFAULT now())"
            )
            version = 0
        if version > len(migrations(package)):
            _check(version, address, package)
        for number, (name, text) in enumerate(migrations(package)[version:], start=version + 1):
            connection.execute(text.replace("{schema}", schema).encode())
            insert = f"INSERT INTO {schema}.migration (version, name) VALUES (%s, %s)"  # noqa: S608
            connection.execute(insert, (number, name))
            applied.append(name)
    return applied
