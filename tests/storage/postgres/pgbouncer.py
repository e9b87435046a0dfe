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

from tests.servers.packages import CACHE, missing, program
from tests.servers.postgres import ROLE, PostgresServer, account, free_port

_STARTS_WITHIN = 60.0


def pooled(server: PostgresServer, database: str, **more: str | Path) -> Generator[str, None, None]:
    """The URL of a database through PgBouncer, with more settings; files that they name are copied to where it is."""
    folder = Path(tempfile.mkdtemp(prefix="fl-pgb-"))
    binary = _binary(folder)
    port = free_port()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{database} = host=127.0.0.1 port={server.port}\n[pgbouncer]\npool_mode = transaction\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"default_pool_size = 4\nmax_client_conn = 200\nlogfile = {folder / 'log'}\n"
        + "".join(f"{name} = {_copied(value, folder)}\n" for name, value in more.items())
    )
    settings.write_text(settings.read_text().replace(f"port={server.port}\n", f"port={server.port} user={ROLE}\n", 1))
    who = account()
    if who is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, who.pw_uid, who.pw_gid)
    identity = {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    process = subprocess.Popen(
        [str(binary), "-q", str(settings)],
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


def _binary(folder: Path) -> Path:
    """The program, where the user may run it who the server runs as."""
    found = program("pgbouncer", "pgbouncer")
    if found is None:
        missing("no PgBouncer here, nor Debian's packages: install pgbouncer")
    if not found.is_relative_to(CACHE):
        return found
    return Path(shutil.copytree(found.parent, folder / "program", symlinks=True)) / found.name


def _copied(value: str | Path, folder: Path) -> str | Path:
    return shutil.copy(value, folder) if isinstance(value, Path) else value


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("PgBouncer did not start")
        time.sleep(0.05)
