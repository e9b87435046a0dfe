"""A live picture, such as that of `top`, on a terminal that a program has to itself for a while.

It is put back as it was however the program ends: by itself, by an error, by a signal, or for as long as Ctrl-Z has it
stopped.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from fairlead.cli.output import Cell, console, styled
from fairlead.core.errors import FairleadError
from fairlead.core.instant import Instant

Look = TypeVar("Look")
Seen = TypeVar("Seen", contravariant=True)
Picture = TypeVar("Picture", bound="LiveView[Any]")

_HEEDED: Final = (
    signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
)  # fmt: skip

# The other screen, without a cursor and without lines that go on in the next one; and back.
_TAKE: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_GIVE_BACK: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class Screen:
    """The terminal of this process, for as long as the context lasts."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._before: list[Any] = []
        self._shown: bytes | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        # What happens elsewhere, in signal handlers and threads, wakes the one who waits for keys.
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wakes, False)

    def __enter__(self) -> Screen:
        self._before = termios.tcgetattr(self._in)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in _HEEDED}
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            # The terminal itself may be gone.
            with contextlib.suppress(OSError, termios.error):
                self._give_back()
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            os.close(self._wakes)
            os.close(self._wake)

    @property
    def size(self) -> tuple[int, int]:
        """Its columns and lines, as they are now."""
        found = os.get_terminal_size(self._out)
        # A terminal that does not know its size says 0.
        return found.columns or 80, found.lines or 24

    def draw(self, lines: Sequence[Sequence[Cell]]) -> None:
        """Show these lines, over what was there: nothing is cleared first, so nothing flickers."""
        screen = console()
        with screen.capture() as captured:
            for number, line in enumerate(lines):
                screen.print(styled(line), soft_wrap=True, end="")
                screen.out(_REST_OF_LINE + "\r\n" * (number < len(lines) - 1), end="", highlight=False)
        text = f"{_HOME}{captured.get()}{_REST_OF_SCREEN}"
        frame = text.encode(sys.stdout.encoding or "utf-8", errors="replace")
        if frame != self._shown:
            self._write(frame)
            self._shown = frame

    def happenings(self, timeout: float) -> Iterator[str | signal.Signals]:
        """The keys that were pressed and the signals that ask to leave, when there are some or the time is over.

        Without any when the terminal was resized or someone called `wake`. A terminal that is gone counts as SIGHUP.
        """
        readable, _, _ = select.select([self._in, self._wakes], [], [], timeout)
        if self._wakes in readable:
            for number in os.read(self._wakes, 1024):
                if number == signal.SIGTSTP:
                    self._stop()
                elif number == signal.SIGCONT:
                    # Whoever stopped this process may have used the terminal.
                    self._take()
                elif number == signal.SIGWINCH:
                    self._shown = None
                elif number:
                    yield signal.Signals(number)
        if self._in in readable:
            typed = b""
            with contextlib.suppress(OSError):
                typed = os.read(self._in, 1024)
            if not typed:
                yield signal.SIGHUP
            yield from typed.decode(errors="replace")

    def wake(self) -> None:
        """Have `happenings` end at once; from any thread."""
        # Closed already, or so full that it is awake anyway.
        with contextlib.suppress(OSError):
            os.write(self._wake, b"\0")

    def _take(self) -> None:
        try:
            # What was typed already stays.
            tty.setcbreak(self._in, termios.TCSADRAIN)
        except termios.error as error:
            raise OSError(*error.args) from None
        self._write(_TAKE.encode())
        self._shown = None

    def _give_back(self) -> None:
        self._write(_GIVE_BACK.encode())
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _stop(self) -> None:
        """Stop as Ctrl-Z asks, with the terminal as it was before; go on when the shell says so."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _write(self, text: bytes) -> None:
        while text:
            text = text[os.write(self._out, text) :]


_TICK: Final = 1.0
"""The picture is drawn anew at least this often, in seconds: a store that does not answer must be seen not to."""
_PATIENCE: Final = 1.0
"""How long a look that is under way is waited for when the user wants to leave, in seconds."""


class LiveView(Protocol[Seen]):
    """All that was seen so far."""

    def seen(self: Picture, look: Seen, now: Instant, /) -> Picture:
        """After a look that succeeded."""
        ...

    def missed(self: Picture, reason: str, now: Instant, /) -> Picture:
        """After a look that failed."""
        ...


class LiveWatcher(Generic[Look]):
    """Looks again and again, in a thread of its own: a store that hangs must not hold up the keys."""

    def __init__(self, look: Callable[[], Look], interval: float, tell: Callable[[], None]) -> None:
        self._look = look
        self._interval = interval
        self._tell = tell
        self._looks: queue.SimpleQueue[Look | FairleadError] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin, with the first look one interval from now."""
        self._thread.start()

    def after(self, view: Picture) -> Picture:
        """What there is to see after the looks since the last call."""
        while not self._looks.empty():
            look = self._looks.get()
            view = view.missed(str(look), now()) if isinstance(look, FairleadError) else view.seen(look, now())
        return view

    def leave(self) -> bool:
        """Look no more; whether a look that was under way has ended, too."""
        self._leaving.set()
        self._thread.join(_PATIENCE)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._leaving.wait(self._interval):
            try:
                self._looks.put(self._look())
            except FairleadError as error:
                self._looks.put(error)
            self._tell()


def watch(
    view: Picture,
    look: Callable[[], Any],
    draw: Callable[[Picture, Instant, int, int], Sequence[Sequence[Cell]]],
    interval: float,
) -> None:
    """Show a view, with a look every so many seconds, until the user quits; raises KeyboardInterrupt for Ctrl-C.

    `draw` makes lines of it, for a moment, a width and a height.
    """
    with Screen() as screen:
        watcher = LiveWatcher(look, interval, screen.wake)
        watcher.start()
        try:
            asked = _show(screen, watcher, view, draw)
        except OSError:
            # The terminal is gone, and the signal that says so is on its way.
            asked = signal.SIGHUP
    if not watcher.leave():
        # A store that hangs must not keep a user waiting who wants to leave; the kernel closes what it held.
        sys.stdout.flush()
        os._exit(0)
    if asked is signal.SIGINT:
        raise KeyboardInterrupt


def _show(
    screen: Screen,
    watcher: LiveWatcher[Any],
    view: Picture,
    draw: Callable[[Picture, Instant, int, int], Sequence[Sequence[Cell]]],
) -> str | signal.Signals:
    """Draw until something asks to leave: a key or a signal."""
    while True:
        view = watcher.after(view)
        screen.draw(draw(view, now(), *screen.size))
        for happening in screen.happenings(_TICK):
            if isinstance(happening, signal.Signals) or happening in "qQ":
                return happening


def now() -> Instant:
    """The time by this machine's clock."""
    return time.time_ns() // 1000
