"""The keeper process: leases to keep come in over stdin, news of them go out over stdout.

Run by a worker, as `fairlead.worker.keeper.PROGRAM`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from fairlead.engine.inline import run_inline
from fairlead.engine.leases import StoreLeases
from fairlead.storage.opening import open_store
from fairlead.worker.keeper import HEADER, Beater, Brief, Leases, News, Notice, frame, keep

_CHUNK: Final = 1 << 20
_PAUSE: Final = 0.02
"""How long, in seconds, what a worker says may wait to be read: nothing next to a lease, long next to a batch."""


def is_stopped(process: int) -> bool:
    """Whether a process is there but stopped, as by SIGSTOP or a debugger; False where one cannot know."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # The command's name is in parentheses and may hold anything, parentheses too.
    return status.rpartition(")")[2].split()[0] in ("T", "t")


def _is_over(over: threading.Event, seconds: float, worker: int) -> bool:
    """Whether the worker is done with this keeper, after waiting for that for so many seconds.

    A worker that was killed may leave children of its handlers behind, who hold the other end of stdin open: then only
    the kernel can tell that it is gone.
    """
    return over.wait(seconds) or os.getppid() != worker


def _leases(brief: Brief) -> Leases:
    """Where leases are renewed: the store itself, or a server."""
    if brief.remote is None:
        return StoreLeases(run_inline(open_store(brief.url, blocking=True)), brief.settings)
    from fairlead.client.leases import RemoteLeases
    from fairlead.client.transport import Address

    return RemoteLeases(Address(brief.url, brief.remote.key), brief.remote.worker, brief.settings)


def messages(stream: int) -> Iterator[bytes]:
    """The messages that come in over a file descriptor, until it ends.

    After those that were there it pauses, and takes what came meanwhile together: a busy worker has something to say
    of every batch, and to wake up for each would cost more than to read it.
    """
    received = b""
    while chunk := os.read(stream, _CHUNK):
        received += chunk
        start = 0
        while (first := start + HEADER) <= len(received):
            end = first + int.from_bytes(received[start:first], "big")
            if end > len(received):
                break
            yield received[first:end]
            start = end
        received = received[start:]
        time.sleep(_PAUSE)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notices = messages(sys.stdin.fileno())
    brief = msgspec.msgpack.decode(next(notices), type=Brief)
    beater = Beater(_leases(brief))
    over = threading.Event()

    def listen() -> None:
        decode = msgspec.msgpack.Decoder(Notice).decode
        for message in notices:
            notice = decode(message)
            beater.hold(notice.held)
            beater.drop(notice.dropped)
        over.set()

    def wait(seconds: float) -> bool:
        ended = _is_over(over, seconds, brief.worker_process)
        while not ended and is_stopped(brief.worker_process):
            ended = _is_over(over, seconds, brief.worker_process)
        return ended

    def tell(news: News) -> None:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.buffer.write(frame(news))
            sys.stdout.buffer.flush()

    threading.Thread(target=listen, daemon=True).start()
    # The first word, which says nothing but that there is someone to say it.
    tell(News())
    keep(beater, brief.settings, tell, wait)
    # There is nothing to put in order, and the listening thread may wait for ever.
    os._exit(0)
