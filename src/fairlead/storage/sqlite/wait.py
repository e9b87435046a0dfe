"""Waking idle workers of other processes: one named pipe per queue, beside the file.

A ring is a byte in the pipe of its queue. One waiter reads it, the others go on sleeping; with nobody waiting it stays
for the next who does. Rings are hints: a full pipe, a missing one or a platform without them only means that waiters
find their work when they next look.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import math
import os
import select
import threading
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from fairlead.storage.sqlite.database import Connection
from fairlead.storage.sqlite.file_permissions import bells_of, create_folder, create_pipe, open_pipe

_RINGS_IN_PIPE: Final = 64
"""More are not kept: after a busy time, with nobody waiting, each would send an idle worker to look in vain."""
_WITHOUT_PIPES: Final = 0.05
"""How often to look, in seconds, where there are no named pipes."""

_LONGEST_POLL: Final = 3_600.0
"""Seconds; the system counts milliseconds in a small integer."""


class Doorbell:
    """Rings and waits for one store file. Safe for threads."""

    def __init__(self, path: Path, connection: Connection | None = None) -> None:
        """`connection` is the one whose writes are followed by rings."""
        self._folder = str(bells_of(path))
        self._connection = connection
        self._silent: tuple[int, int, int] | None = None
        """The state of the file's folder in which there are no pipes: nobody has ever waited."""
        self._lock = threading.Lock()
        self._ears: dict[str, int] = {}
        self._hands: dict[str, int] = {}
        self._works = hasattr(os, "mkfifo")

    def ring(self, queues: dict[str, int]) -> None:
        """Wake up to so many waiters of each queue."""
        state = None if self._connection is None else self._connection.folder_state
        if state is not None and state == self._silent:
            return
        with self._lock:
            if state is not None and not self._hands and not os.access(self._folder, os.F_OK):
                self._silent = state
                return
            for queue, times in queues.items():
                hand = self._hand(queue)
                if hand is None:
                    continue
                try:
                    os.write(hand, b"." * min(times, _RINGS_IN_PIPE - _rings_in(hand)))
                except BlockingIOError:
                    pass
                except OSError:
                    os.close(self._hands.pop(queue))

    async def wait(self, queues: Collection[str], timeout: float) -> None:
        """Sleep until a ring of one of the queues is ours, or the time is up."""
        ears = self._listen(queues)
        if not ears:
            await asyncio.sleep(min(timeout, _WITHOUT_PIPES))
            return
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[int] = loop.create_future()

        def hear(ear: int) -> None:
            if not heard.done() and _take_ring(ear):
                heard.set_result(ear)

        for ear in ears:
            loop.add_reader(ear, hear, ear)
        try:
            async with asyncio.timeout(timeout):
                await heard
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if heard.done() and not heard.cancelled():
                # Cancelled between hearing the ring and answering it: another waiter shall.
                with contextlib.suppress(OSError):
                    os.write(heard.result(), b".")
            raise
        finally:
            for ear in ears:
                loop.remove_reader(ear)
                os.close(ear)

    def wait_blocking(self, queues: Collection[str], timeout: float) -> None:
        """The same for a thread without an event loop."""
        ears = self._listen(queues)
        if not ears:
            time.sleep(min(timeout, _WITHOUT_PIPES))
            return
        poll = select.poll()
        for ear in ears:
            poll.register(ear, select.POLLIN)
        deadline = time.monotonic() + timeout
        try:
            # All who wait see a ring, one of them gets it.
            while (left := deadline - time.monotonic()) > 0:
                if any(_take_ring(ear) for ear, _ in poll.poll(math.ceil(min(left, _LONGEST_POLL) * 1_000))):
                    return
        finally:
            for ear in ears:
                os.close(ear)

    def close(self) -> None:
        with self._lock:
            for descriptor in (*self._ears.values(), *self._hands.values()):
                os.close(descriptor)
            self._ears.clear()
            self._hands.clear()
            self._works = False

    def _listen(self, queues: Iterable[str]) -> list[int]:
        """Descriptors to wait on, the caller's own: an event loop knows one reader per descriptor."""
        with self._lock:
            return [os.dup(ear) for queue in queues if (ear := self._ear(queue)) is not None]

    def _ear(self, queue: str) -> int | None:
        """The reading end of a queue's pipe, made if need be and kept open: no ring between two waits is lost."""
        ear = self._ears.get(queue)
        if ear is None and self._works:
            try:
                pipe = self._pipe(queue)
                create_folder(self._folder)
                create_pipe(pipe)
                # Opened for writing too, so that the pipe does not end when the last ringer leaves.
                ear = self._ears[queue] = open_pipe(pipe, os.O_RDWR)
            except OSError:
                return None
        return ear

    def _hand(self, queue: str) -> int | None:
        """The writing end of a queue's pipe, if someone has ever waited for it."""
        hand = self._hands.get(queue)
        # Asked first: where nobody has ever waited every submit comes by here, and an error costs more than an answer.
        if hand is None and self._works and os.access(pipe := self._pipe(queue), os.F_OK):
            try:
                hand = self._hands[queue] = open_pipe(pipe, os.O_WRONLY)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENXIO, errno.ENOTDIR, errno.ELOOP):
                    self._works = False
                return None
        return hand

    def _pipe(self, queue: str) -> str:
        # A queue may be called `.` or `..`.
        return f"{self._folder}/{queue}.bell"


def _rings_in(pipe: int) -> int:
    # Imported here: this module is also imported where there are no pipes.
    import fcntl
    import termios

    (rings,) = array.array("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return min(rings, _RINGS_IN_PIPE)


def _take_ring(ear: int) -> bool:
    try:
        return bool(os.read(ear, 1))
    except OSError:
        return False
