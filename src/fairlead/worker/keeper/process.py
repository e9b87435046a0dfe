"""The keeper process: leases to keep come in over stdin, news of them go out over stdout.

Run by a worker, as `keeper.PROGRAM`. Where tasks end within a moment, or there are none, nothing needs
to be kept. So a keeper dozes at first: it knows what is held, and has imported no more than this module does. It opens
the store when a lease has been held for a moment, and when nothing was held for long it begins anew as what it was.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import sys
import time

from fairlead.worker.keeper.pipe import HEADER, Orders, forget, frame, hand_over, take_over

TYPE_CHECKING = False
"""As typing has it, which would be the largest import here."""

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.core.identity import LeaseToken, TaskId
    from fairlead.storage.values import Pulse
    from fairlead.worker.keeper.lease_renewal import Leases

_CHUNK = 1 << 16
_LOOKS = 50
_PAUSE = 0.02
"""How long, in seconds, what a worker says may wait to be read: nothing next to a lease, long next to a batch."""


def is_stopped(process: int) -> bool:
    """Whether a process is there but stopped, as by SIGSTOP or a debugger; False where one cannot know."""
    try:
        with open(f"/proc/{process}/stat") as file:  # noqa: PTH123 - pathlib is dear to import
            status = file.read()
    except OSError:
        return False
    # The command's name is in parentheses and may hold anything, parentheses too.
    return status.rpartition(")")[2].split()[0] in ("T", "t")


class Ward:
    """The worker whose leases are kept: what it holds, and whether it is still there."""

    def __init__(self, process: int, stream: int) -> None:
        self.held: dict[TaskId, LeaseToken] = {}
        self.due: dict[TaskId, float] = {}
        """When an attempt is so late that its worker will not say so any more, on the clock that processes share."""
        self.allowed: dict[TaskId, float] = {}
        """How much later the time of an attempt began than the attempt, in seconds, where that is worth a word."""
        self.is_gone = False
        self.process = process
        self._stream = stream
        self._received = b""

    @property
    def is_silent(self) -> bool:
        """Whether it holds nothing and is not in the midst of a message."""
        return not self.held and not self._received

    def listen(self, seconds: float) -> bool:
        """Take in what it says for so many seconds; whether it is still there then.

        After what there was to read this pauses, and takes what came meanwhile together: a busy worker has something
        to say of every batch, and to wake up for each would cost more than to read it.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([self._stream], [], [], left)[0]:
            chunk = os.read(self._stream, _CHUNK)
            if not chunk:
                self.is_gone = True
                return False
            self._take(chunk)
            time.sleep(_PAUSE)
        # A worker that was killed may leave children of its handlers behind, who hold the other end of the stream
        # open: then only the kernel can tell that it is gone.
        self.is_gone = os.getppid() != self.process
        return not self.is_gone

    def listen_while_stopped(self, seconds: float) -> bool:
        """`listen`, and go on as long as the worker is stopped: leases are for the living."""
        while self.listen(seconds):
            if not is_stopped(self.process):
                return True
        return False

    def _take(self, chunk: bytes) -> None:
        received = self._received + chunk
        start = 0
        while (first := start + HEADER) <= len(received):
            end = first + int.from_bytes(received[start:first], "big")
            if end > len(received):
                break
            held, dropped, *notes = marshal.loads(received[first:end])  # noqa: S302 - from the process that started it
            self.held.update(held)
            for task_id in held if self.allowed else ():
                self.allowed.pop(task_id, None)
            for known, news in zip((self.due, self.allowed), notes, strict=False):
                known.update(news)
            forget(self.held, dropped, self.due, self.allowed)
            start = end
        self._received = received[start:]


def doze(ward: Ward, moment: float) -> bool:
    """Listen until a lease has been held for a moment, in seconds; whether the worker is still there then."""
    held: set[LeaseToken] = set()
    while ward.listen(moment / 2):
        if not held.isdisjoint(ward.held.values()):
            return True
        held = set(ward.held.values())
    return False


def tell(pulses: Mapping[TaskId, Pulse], failed: int, *, ready: bool = True) -> None:
    """Tell the worker what became of leases, how many heartbeats did not arrive, and whether leases can be kept."""
    try:
        sys.stdout.buffer.write(frame(({task_id: pulse.value for task_id, pulse in pulses.items()}, failed, ready)))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Nobody is left to hear it, which `listen` is about to find.
        pass


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    orders = take_over(int(sys.argv[1]))
    ward = Ward(orders.worker, sys.stdin.fileno())
    if not orders.at_once:
        # The first word, which says nothing but that there is someone to say it.
        tell({}, 0)
    while orders.at_once or doze(ward, orders.moment):
        leases = _open(ward, orders)
        if leases is None:
            return
        _keep(ward, leases, orders.rest)
        if ward.is_gone:
            return
        orders.at_once = False
        _begin_anew(orders)


def _begin_anew(orders: Orders) -> None:
    """Become what a keeper is at first, if that is possible. What the worker says meanwhile waits in the stream."""
    handed = hand_over(orders)
    os.set_inheritable(handed, True)
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], str(handed)])  # noqa: S606
    except OSError:
        # It has been moved, as when it is upgraded. All that is lost is memory.
        os.close(handed)


def _open(ward: Ward, orders: Orders) -> Leases | None:
    """What leases are renewed with, as soon as it can be had; None if the worker is gone before that."""
    # msgspec imports typing_extensions where it finds it, for the annotations of users, and a process without any has
    # no use for megabytes of it. A store's driver that needs it still gets it.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import msgspec  # noqa: F401

    del sys.modules["typing_extensions"]
    from fairlead.core.errors import StoreError
    from fairlead.worker.keeper.lease_renewal import open_leases

    while True:
        try:
            leases = open_leases(orders.brief)
        except StoreError:
            tell({}, 1, ready=False)
        else:
            tell({}, 0)
            # What is held by now is renewed at once.
            return leases if ward.listen_while_stopped(_PAUSE) else None
        if not ward.listen(orders.moment):
            return None


def _keep(ward: Ward, leases: Leases, rest: float) -> None:
    """Keep leases until the worker is gone, or nothing was held for so many seconds."""
    from fairlead.worker.keeper.lease_renewal import Beater, keep

    silent_since = time.monotonic()

    def pause(seconds: float) -> bool:
        nonlocal silent_since
        here = ward.listen_while_stopped(seconds)
        now = time.monotonic()
        if not ward.is_silent:
            silent_since = now
        return not here or now - silent_since > rest

    beater = Beater(leases, ward.held, ward.due, ward.allowed, lambda: _end_writer(ward, leases))
    keep(beater, leases.settings, tell, pause)


def _end_writer(ward: Ward, leases: Leases) -> bool:
    """Kill the worker if it has the store locked, and goes on having it; whether it was killed.

    Asked when a task of it is far over its timeout and the store could not be written: its handler holds the
    interpreter's lock while another of its threads is amid a write, which so never ends, and neither can anyone else
    write. A worker that only writes a lot is seen without the lock between its writes.
    """
    from fairlead.worker.keeper.lease_renewal import writer_of

    for _ in range(_LOOKS):
        if writer_of(leases) != ward.process:
            return False
        time.sleep(_PAUSE)
    os.kill(ward.process, signal.SIGKILL)
    while os.getppid() == ward.process:
        time.sleep(_PAUSE)
    sys.stderr.write(
        "fairlead: a handler held the GIL past its timeout while this worker was writing to the store, which locked "
        "the store for everybody; the lease keeper killed the worker. Give such handlers isolate=True\n"
    )
    return True
