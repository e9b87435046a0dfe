"""The real program in processes of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from fairlead.admin.engine import AdminEngine
from fairlead.app.connection import Connection
from fairlead.cli.program import run
from fairlead.core.settings import Settings
from fairlead.core.task import Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.values import Filter

PATIENCE = 120.0
"""How long anything that is waited for may take, in seconds."""

COMMAND = [sys.executable, "-m", "fairlead"]


class Ended(NamedTuple):
    """What a program that has ended left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote, which must be one JSON document."""
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """What it wrote, which must be JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> str:
        """What it complained of, which must be one line of the usual form."""
        assert self.err.startswith("fairlead: ") and self.err.count("\n") == 1, self
        return self.err.removeprefix("fairlead: ").rstrip("\n")


class Folder:
    """A folder in which the program is run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")}
        self.environment["NO_COLOR"] = "1"
        self._connections: list[Connection] = []

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text)
        return file

    def run(self, *arguments: str, stdin: str = "", **environment: str) -> Ended:
        """Run the program to its end."""
        process = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.path,
            env=self.environment | environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "Traceback" not in process.stderr, process.stderr
        return Ended(process.returncode, process.stdout, process.stderr)

    def ok(self, *arguments: str, **options: str) -> Ended:
        """Run the program to its end, which must be a good one."""
        ended = self.run(*arguments, **options)
        assert ended.code == 0, ended
        return ended

    def quick(self, *arguments: str) -> Ended:
        """Run the program in this process: the same code without a new interpreter, for the many small cases."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.path), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(arguments)
        return Ended(code, out.getvalue(), err.getvalue())

    def submit(self, *arguments: str) -> str:
        """Submit a task; its id."""
        ended = self.quick("submit", *arguments)
        assert ended.code == 0, ended
        return ended.out.strip()

    def start(self, *arguments: str) -> Program:
        """Start the program."""
        return Program([*COMMAND, *arguments], self.path, self.environment)

    def engine(self, file: str = "fairlead.db") -> AdminEngine:
        """An engine on a store of this folder, to look from outside the program."""
        connection = Connection(f"sqlite:///{self.path / file}", Settings())
        self._connections.append(connection)
        return connection.inline()

    def tasks(self, file: str = "fairlead.db") -> list[Task]:
        """Every task in a store of this folder."""
        return run_inline(self.engine(file).find(Filter(), limit=10_000, newest_first=False))

    def close(self) -> None:
        for connection in self._connections:
            connection.close_inline()


class Program:
    """A program that runs, and what it has said so far."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            # A shell starts what runs in the background with SIGINT ignored, and a child inherits that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._said = threading.Condition()
        self._lines: list[str] = []
        self._open = 2
        for stream in (self._process.stdout, self._process.stderr):
            threading.Thread(target=self._listen, args=(stream,), daemon=True).start()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        self._wait(lambda: self._open == 0, "the end of its output")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lines(self) -> list[str]:
        with self._said:
            return list(self._lines)

    def find(self, text: str, count: int = 1) -> list[str]:
        """The lines with this text, as soon as there are so many."""
        found: list[str] = self._wait(lambda: self._matching(text, count), f"{count} lines with {text!r}")
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, tracebacks: int = 0) -> int:
        """The exit code, when it has ended; it has told of no exceptions but those of so many attempts."""
        code = self._process.wait(PATIENCE)
        self._wait(lambda: self._open == 0, "the end of its output")
        assert sum("Traceback" in line for line in self._lines) == tracebacks, self._lines
        return code

    def silent(self) -> None:
        """Wait until nobody is left who could write, children of the program included."""
        self._wait(lambda: self._open == 0, "the end of its output")

    def _matching(self, text: str, count: int) -> list[str]:
        found = [line for line in self._lines if text in line]
        return found if len(found) >= count else []

    def _wait(self, reached: Callable[[], Any], what: str) -> Any:
        with self._said:
            assert self._said.wait_for(reached, PATIENCE), f"waited in vain for {what}: {self._lines}"
            return reached()

    def _listen(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._said:
                    self._lines.append(line.rstrip("\n"))
                    self._said.notify_all()
        with self._said:
            self._open -= 1
            self._said.notify_all()


def until(reached: Callable[[], Any]) -> Any:
    """Look again and again until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := reached()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return answer


def folders(path: Path) -> Iterator[Folder]:
    folder = Folder(path)
    yield folder
    folder.close()
