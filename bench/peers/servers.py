"""The servers that all contestants share: each use starts with an empty one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg

from bench.peers.environments import ROOT
from bench.peers.programs import redis_server
from bench.serving import served
from tests.servers.postgres import ROLE, started
from tests.servers.redis import started_single


class Servers:
    """Redis without persistence, PostgreSQL and SQLite with every commit on the disk, and fairlead's own over HTTP."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        if "TEST_REDIS_SERVER" not in os.environ and (found := redis_server()) is not None:
            os.environ["TEST_REDIS_SERVER"] = str(found)
        self.redis = stack.enter_context(contextlib.contextmanager(started_single)())
        self._postgres = stack.enter_context(contextlib.contextmanager(started)())
        with self._postgres.admin() as connection, contextlib.suppress(psycopg.errors.UndefinedObject):
            # To rest before a measurement; PostgreSQL has this right since version 15.
            connection.execute(f"GRANT pg_checkpoint TO {ROLE}")

    @property
    def versions(self) -> str:
        """What runs here, and how durable it is, for the report."""
        with self._postgres.admin() as connection:
            asked = ("server_version", "fsync", "synchronous_commit")
            version, *durable = [(connection.execute(f"SHOW {one}").fetchone() or ("?",))[0] for one in asked]
        redis = str(self._redis_facts("server")["redis_version"])
        postgres = f"PostgreSQL {version} with fsync {durable[0]} and synchronous_commit {durable[1]}"
        return f"Redis {redis} without persistence, {postgres}, SQLite {sqlite3.sqlite_version} with synchronous=FULL"

    @contextlib.contextmanager
    def empty(self, kind: str) -> Iterator[str]:
        """The URL of an empty server of this kind, which is emptied again afterwards."""
        match kind:
            case "redis":
                self.flush()
                try:
                    yield self.redis.url()
                finally:
                    self.flush()
            case "postgresql":
                database = self._postgres.create_database()
                try:
                    yield self._postgres.url(database)
                finally:
                    self._postgres.drop_database(database)
            case "http":
                with self.empty("redis") as url, served(url) as (address, _):
                    yield address
            case _:
                with tempfile.TemporaryDirectory(dir=ROOT, prefix=".bench-", ignore_cleanup_errors=True) as folder:
                    yield f"sqlite:///{folder}/tasks.db"

    def flush(self) -> None:
        """Empty Redis."""
        self.redis.ask("FLUSHALL", timeout=60)

    def size(self, kind: str, url: str) -> int:
        """Bytes of memory or disk that a queue takes there."""
        match kind:
            case "redis":
                return int(self._redis_facts("memory")["used_memory"])
            case "postgresql":
                with self._postgres.admin(url.rpartition("/")[2]) as connection:
                    relations = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_stat_user_tables"
                    (found,) = connection.execute(relations).fetchone() or (0,)
                return int(str(found or 0))
            case _:
                path = url.removeprefix("sqlite:///")
                with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return Path(path).stat().st_size

    def _redis_facts(self, section: str) -> dict[str, str]:
        lines = self.redis.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)
