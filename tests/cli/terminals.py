"""The real program on a terminal of its own, with someone who types and someone who watches."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable
from typing import Any

from tests.cli.running import COMMAND, PATIENCE, Folder

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TAKEN = "\x1b[?1049h"
GIVEN_BACK = "\x1b[?1049l"
NO_CURSOR = "\x1b[?25l"
CURSOR = "\x1b[?25h"


class Terminal:
    """A terminal on which one program runs."""

    def __init__(
        self, folder: Folder, *arguments: str, command: list[str] | None = None, columns: int = 80, lines: int = 24
    ) -> None:
        self._master, slave = pty.openpty()
        self._slave = os.dup(slave)
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        environment = {name: value for name, value in folder.environment.items() if name not in ("COLUMNS", "LINES")}
        self._process = subprocess.Popen(
            command or [*COMMAND, *arguments],
            cwd=folder.path,
            env={"TERM": "xterm-256color"} | environment,
            # Its own session with this terminal: keys that are signals, and a size that is told of.
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self._said = threading.Condition()
        self._written = ""
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._stopped, self._stop = os.pipe()
        self._ends: tuple[int, ...] = (self._slave, self._master, self._stopped, self._stop)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE)
        self.hang_up()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def written(self) -> str:
        """All that was written so far."""
        with self._said:
            return self._written

    @property
    def frame(self) -> list[str]:
        """The lines of the last picture that was drawn to its end, without their styles."""
        drawn, _, _ = self.written.rpartition("\x1b[J")
        _, _, last = drawn.rpartition("\x1b[H")
        return [ESCAPE.sub("", line).rstrip() for line in last.split("\r\n")]

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def see(self, text: str) -> str:
        """The line of a picture with this text, as soon as there is one."""
        line: str = self.until(lambda: next((line for line in self.frame if text in line), None), text)
        return line

    def until(self, reached: Callable[[], Any], what: str) -> Any:
        with self._said:
            assert self._said.wait_for(reached, PATIENCE), f"waited in vain for {what}: {self.frame}"
            return reached()

    def wait(self) -> int:
        """The exit code, when it has ended; the terminal must be as it was."""
        code = self.ended()
        self.check_given_back()
        return code

    def ended(self) -> int:
        """The exit code, when it has ended."""
        return self._process.wait(PATIENCE)

    def check_given_back(self) -> None:
        assert termios.tcgetattr(self._slave) == self.before
        self.until(lambda: self._written.rfind(GIVEN_BACK) >= self._written.rfind(TAKEN), "the old screen")
        assert self.written.rfind(CURSOR) >= self.written.rfind(NO_CURSOR)

    def hang_up(self) -> None:
        """Take the terminal away."""
        if self._listener.is_alive():
            os.write(self._stop, b"\0")
            self._listener.join(PATIENCE)
        for end in self._ends:
            os.close(end)
        self._ends = ()

    def _listen(self) -> None:
        # Not simply by reading: one who reads from a terminal keeps it from being closed.
        with contextlib.suppress(OSError):
            while self._master in select.select([self._master, self._stopped], [], [])[0]:
                chunk = os.read(self._master, 65536)
                with self._said:
                    self._written += self._decode(chunk)
                    self._said.notify_all()
