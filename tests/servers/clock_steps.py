"""Stores whose own clock can be set, forward and back, without the rights to set a machine's.

The server's clock is left alone. What fairlead asks for it is answered otherwise: in PostgreSQL by a function of the
same name that comes first on the database's search path, in Redis by the one script file that asks, replaced in a copy
of the package. All else is the code as users run it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol

import psycopg

import fairlead
from fairlead.core.instant import Instant, Span
from fairlead.storage.postgres.url import parse
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

_STEP = "the-clock-was-set-by"

_REDIS_CLOCK = f"""
local function clock()
  local parts = redis.call('time')
  return parts[1] * 1000000 + parts[2] + (redis.call('get', '{_STEP}') or 0)
end

local function moment(word)
  return word == '' and clock() or tonumber(word)
end
"""

_POSTGRES_CLOCK = """
CREATE SCHEMA stepping;
CREATE TABLE stepping.clock (set_by interval NOT NULL);
INSERT INTO stepping.clock VALUES ('0');
GRANT USAGE ON SCHEMA stepping TO PUBLIC;
GRANT SELECT ON stepping.clock TO PUBLIC;
CREATE FUNCTION stepping.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + set_by FROM stepping.clock';
"""


class SteppingStore(Protocol):
    """A store whose clock can be set."""

    url: str
    environment: dict[str, str]
    """What processes need that use it."""

    def step(self, by: Span) -> None:
        """Set its clock, which was right."""
        ...

    def now(self) -> Instant:
        """The time by its clock, as processes learn it."""
        ...


class SteppingRedis:
    """A Redis, for processes that run a copy of the package."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        package = Path(fairlead.__file__).parent
        copy = folder / "fairlead"
        shutil.copytree(package, copy, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
        clock = copy / "storage" / "redis" / "lua" / "clock.lua"
        clock.unlink()
        clock.write_text(_REDIS_CLOCK)
        self.url = server.url()
        self.environment = {"PYTHONPATH": str(folder)}
        self._server = server

    def step(self, by: Span) -> None:
        self._server.ask("SET", _STEP, by)

    def now(self) -> Instant:
        return int(self._server.ask("EVAL", f"{_REDIS_CLOCK}\nreturn string.format('%.0f', clock())", 0))


class SteppingPostgres:
    """A database of a PostgreSQL server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.database = server.copy_of_template()
        with server.admin(self.database) as connection:
            connection.execute(_POSTGRES_CLOCK.encode())
            connection.execute(
                f"ALTER DATABASE {self.database} SET search_path = stepping, public, pg_catalog".encode()
            )
        self.url = server.url(self.database)
        self.environment: dict[str, str] = {}

    def step(self, by: Span) -> None:
        with self._server.admin(self.database) as connection:
            connection.execute("UPDATE stepping.clock SET set_by = %s * interval '1 microsecond'", (by,))

    def now(self) -> Instant:
        with psycopg.connect(parse(self.url).conninfo) as connection:
            row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
        assert row is not None
        return int(row[0])
