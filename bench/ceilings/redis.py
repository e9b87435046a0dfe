"""Redis alone: its own benchmark, and fairlead's scripts sent in a bare loop.

What fairlead sends for some work is recorded on its way, then sent again as it was to an emptied server, one command
after another. The server does the same as for fairlead, and nobody encodes, decides or decodes anything.
"""

from __future__ import annotations

import contextlib
import csv
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import hiredis
from msgspec import Struct

from bench.ceilings import Ceiling
from fairlead.admin.engine import AdminEngine
from fairlead.core.events import Completed
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.clock import ManualClock, SystemClock
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store

BATCH: Final = 100
BULK: Final = 1_000
_CHUNK: Final = 1 << 16
_PIPELINE: Final = 50
_WISH: Final = Submission(type="bench", parameters=b'{"number":1}')


class _Phase(Struct, frozen=True):
    """A piece of work, as it was recorded."""

    work: str
    like: str
    """The work of a queue that it bounds."""
    tasks: int
    commands: list[object]
    replies: list[object]


def server_alone(program: Path, port: int, count: int) -> list[Ceiling]:
    """What the server's own benchmark says, with 50 clients."""
    return [
        Ceiling("SET, 50 clients (redis-benchmark)", _benchmark(program, port, count)),
        Ceiling(f"SET, 50 clients, pipelines of {_PIPELINE}", _benchmark(program, port, count, "-P", str(_PIPELINE))),
    ]


def _benchmark(program: Path, port: int, count: int, *options: str) -> float:
    command = [str(program), "-p", str(port), "-t", "set", "-n", str(count), "--csv", *options]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    rows = [row for row in csv.reader(said.splitlines()) if row and row[0] == "SET"]
    return float(rows[0][1])


def scripts_alone(port: int, empty: Callable[[], object], *, single: int, waiting: int) -> list[Ceiling]:
    """What the server does with fairlead's scripts."""
    opening, *phases = _recorded(port, single, waiting)
    empty()
    with contextlib.closing(_Link(port)) as link:
        link.replay(opening.commands)
        ceilings = []
        for phase in phases:
            seconds, replies = link.replay(phase.commands)
            if replies != phase.replies:
                raise RuntimeError(f"“{phase.work}” went another way than when it was recorded")
            ceilings.append(Ceiling(phase.work, phase.tasks / seconds, phase.like))
        return ceilings


def _recorded(port: int, single: int, waiting: int) -> list[_Phase]:
    """What fairlead and the server say to each other for some work; the first phase is how they meet."""
    phases: list[_Phase] = []
    with _recording(port) as (address, talk):
        store = run_inline(open_store(f"redis://127.0.0.1:{address}/0", blocking=True))
        # What is answered must not depend on the server's clock: sent again it is to be answered alike.
        engine = AdminEngine(store, clock=ManualClock(SystemClock().now()), batching=False)

        def end(work: str, like: str, tasks: int) -> None:
            pairs = zip(talk.commands, talk.replies, strict=True)
            # A script that the server did not know was sent again as a whole, which it will know the next time.
            done = [pair for pair in pairs if not isinstance(pair[1], hiredis.ReplyError)]
            phases.append(_Phase(work, like, tasks, [pair[0] for pair in done], [pair[1] for pair in done]))
            talk.commands.clear()
            talk.replies.clear()

        run_inline(engine.submit_many([_WISH]))
        end("opening", "", 1)
        for _ in range(single):
            run_inline(engine.submit(_WISH))
        end("our script: add one", "submit one by one", single)
        for _ in range(waiting // BULK):
            run_inline(engine.submit_many([_WISH] * BULK))
        end("our script: add by 1,000", "submit in bulk of 1,000", waiting)
        for _ in range(waiting // BATCH):
            held = run_inline(engine.claim(WorkerId("bench"), ["default"], limit=BATCH))
            run_inline(engine.settle([Settlement(task, Completed(b"42")) for task in held]))
        end(f"our scripts: claim + settle by {BATCH}", "run, 1 process", waiting)
        run_inline(engine.close())
    return phases


class _Talk:
    """What went to the server and what came back, one reply for each command."""

    def __init__(self) -> None:
        self.commands: list[object] = []
        self.replies: list[object] = []


@contextlib.contextmanager
def _recording(port: int) -> Iterator[tuple[int, _Talk]]:
    """A port that leads to the server, and what is said through it."""
    talk = _Talk()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_pass_on, args=(client, port, talk), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], talk
        # Wakes the thread that accepts.
        listener.shutdown(socket.SHUT_RDWR)


def _pass_on(client: socket.socket, port: int, talk: _Talk) -> None:
    """Carry what either says to the other, until one of them hangs up."""
    with (
        contextlib.suppress(ConnectionError),
        client,
        socket.create_connection(("127.0.0.1", port)) as server,
        selectors.DefaultSelector() as both,
    ):
        both.register(client, selectors.EVENT_READ, (server, hiredis.Reader(), talk.commands))
        both.register(server, selectors.EVENT_READ, (client, hiredis.Reader(), talk.replies))
        while True:
            for key, _ in both.select():
                other, reader, said = key.data
                data = cast(socket.socket, key.fileobj).recv(_CHUNK)
                if not data:
                    return
                reader.feed(data)
                while (word := reader.gets()) is not False:
                    said.append(word)
                # Only now: what a phase has said is in before it ends.
                other.sendall(data)


class _Link:
    """A connection that sends commands as they are."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def replay(self, commands: list[object]) -> tuple[float, list[object]]:
        """Seconds that the commands took, one after another, and what the server said."""
        payloads = [hiredis.pack_command(cast(Any, tuple(cast("list[bytes]", command)))) for command in commands]
        replies = []
        began = time.perf_counter()
        for payload in payloads:
            self._socket.sendall(payload)
            while (reply := self._reader.gets()) is False:
                self._reader.feed(self._socket.recv(_CHUNK))
            replies.append(reply)
        return time.perf_counter() - began, replies

    def close(self) -> None:
        self._socket.close()
