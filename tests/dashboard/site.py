"""A server with its dashboard in a process of its own, tasks in it, and a browser that looks at it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 60.0
"""How long anything that is waited for may take, in seconds."""
FAIRLEAD: Final = (sys.executable, "-m", "fairlead")

expect.set_options(timeout=PATIENCE * 1000)


def environment() -> dict[str, str]:
    """The variables of a process that nobody has configured."""
    return {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}


class Site:
    """`fairlead up`, as `make run` starts it."""

    def __init__(self, store: str, folder: Path, *options: str, program: Sequence[str] = FAIRLEAD) -> None:
        self.store = store
        self._folder = folder
        self._options = options
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self._port = 0

    def start(self) -> None:
        """Start it, on the port that it had before if there was one."""
        command = [
            *self._program, "up", "--json", "--store", self.store, "--port", str(self._port),
            "--log-level", "error", *self._options,
        ]  # fmt: skip
        with (self._folder / "up.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._folder / "up.log").read_text()
        self.url = msgspec.json.decode(line)["url"]
        self._port = httpx.URL(self.url).port or 0

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def ask(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        """Call the API, as another program would."""
        answer = httpx.request(method, f"{self.url}{path}", json=body, timeout=PATIENCE)
        assert answer.status_code == (status or answer.status_code) and answer.status_code < 400, answer.text
        return answer.json()

    def submit(self, task_type: str = "echo", **wish: Any) -> str:
        task_id: str = self.ask("POST", "/api/v1/tasks", {"task_type": task_type, **wish})["task_id"]
        return task_id

    def submit_many(self, tasks: list[dict[str, Any]]) -> list[str]:
        answer = self.ask("POST", "/api/v1/tasks/batch", {"tasks": tasks})
        assert answer["rejected"] == 0, answer
        return [result["task"]["task_id"] for result in answer["results"]]

    def task(self, task_id: str) -> Any:
        return self.ask("GET", f"/api/v1/tasks/{task_id}")

    def counts(self) -> dict[str, int]:
        states: dict[str, int] = self.ask("GET", "/api/v1/queue/stats")["states"]
        return states

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come about"
            time.sleep(0.02)


class Visitor:
    """Somebody with a browser. Whatever its console complains of is a failure, unless it was expected."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self.forgiven: list[str] = []
        """Patterns of complaints that are no failure."""
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"{error}"))

    def go(self, path: str = "/") -> Page:
        self.page.goto(f"{self.url}{path}")
        expect(self.page.locator("[data-state=live]")).to_be_visible()
        return self.page

    def check(self) -> None:
        """Nothing went wrong without being shown."""
        unforgiven = [each for each in self.complaints if not any(re.search(sign, each) for sign in self.forgiven)]
        assert not unforgiven, unforgiven

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location.get('url', '')}")


@contextlib.contextmanager
def visiting(browser: Browser, url: str, **options: Any) -> Iterator[Visitor]:
    """Somebody who has just opened a browser."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options})
    context.set_default_timeout(PATIENCE * 1000)
    visitor = Visitor(context.new_page(), url)
    try:
        yield visitor
        visitor.check()
    finally:
        context.close()
