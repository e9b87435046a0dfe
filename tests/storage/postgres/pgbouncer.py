"""PgBouncer in transaction mode before a test server: a pooler that gives every transaction another session."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.servers.postgres import ROLE, PostgresServer, account, free_port

_STARTS_WITHIN = 20.0


def pooled(server: PostgresServer, database: str) -> Generator[str, None, None]:
    """The URL of a database through PgBouncer; skips when there is none, which no package of Python's can change."""
    binary = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if binary is None:
        reason = "no PgBouncer here: install pgbouncer"
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="fl-pgb-"))
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{database} = host=127.0.0.1 port={server.port}\n[pgbouncer]\npool_mode = transaction\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"default_pool_size = 4\nmax_client_conn = 200\nlogfile = {folder / 'log'}\n"
    )
    settings.write_text(settings.read_text().replace(f"port={server.port}\n", f"port={server.port} user={ROLE}\n", 1))
    who = account()
    if who is not None:
        for path in (folder, settings):
            os.chown(path, who.pw_uid, who.pw_gid)
    identity = {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    process = subprocess.Popen(
        [binary, "-q", str(settings)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **identity,  # type: ignore[call-overload]
    )
    try:
        _wait_for(port, process)
        yield f"postgresql://{ROLE}@127.0.0.1:{port}/{database}"
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("PgBouncer did not start")
        time.sleep(0.05)
