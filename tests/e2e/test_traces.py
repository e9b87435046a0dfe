"""One trace, from the caller over the server and a worker through two attempts to the end, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import pytest

from tests.e2e.processes import PATIENCE, ROOT

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


class Traced:
    """A server and a worker that trace, and the spans that they leave behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str) -> IO[str]:
        """A process of the command line that traces; what it says."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        process = self._processes[name] = subprocess.Popen(
            [sys.executable, "-c", "from tests.e2e.traced import run; run()", *arguments],
            cwd=ROOT,
            env=environment | {"SPANS": str(self._folder / name), "FAIRLEAD_SWEEP_INTERVAL_SECONDS": "0.05"},
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        return process.stdout

    def end(self) -> dict[str, list[dict[str, Any]]]:
        """The spans of each process, when all have left."""
        for process in reversed(self._processes.values()):
            process.terminate()
            assert process.wait(PATIENCE) == 0
        return {name: json.loads((self._folder / name).read_text()) for name in self._processes}

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    traced = Traced(tmp_path)
    yield traced
    traced.close()


@pytest.mark.slow
@pytest.mark.parametrize("over_http", [False, True], ids=["worker on the store", "worker over HTTP"])
def test_one_trace_leads_from_a_call_through_both_attempts(traced: Traced, tmp_path: Path, over_http: bool) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    url = json.loads(traced.start("server", "serve", "--json", "--port", "0", "--store", store).readline())["url"]
    traced.start("worker", "worker", "tests.e2e.traced:app", "--store", url if over_http else store)
    with httpx.Client(base_url=f"{url}/api/v1", timeout=PATIENCE) as client:
        wishes = {name: {"task_type": name, "retry_policy": {"initial_seconds": 0}} for name in ("flaky", "in_thread")}
        wishes["apart"] = {"task_type": "apart", "trace_id": f"00-{TRACE}-{CALLER}-01"}
        header = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
        tasks = {}
        for name, wish in wishes.items():
            created = client.post("/tasks", json=wish, headers={} if "trace_id" in wish else header)
            assert created.status_code == 201, created.text
            shown = client.get(f"/tasks/{created.json()['task_id']}", params={"wait": PATIENCE}).json()
            while shown["status"] not in ("completed", "dead_letter", "failed"):
                shown = client.get(f"/tasks/{shown['task_id']}", params={"wait": PATIENCE}).json()
            tasks[name] = shown
    spans = traced.end()

    task = tasks["flaky"]
    (submit,) = [span for span in spans["server"] if span["attributes"]["fairlead.task.type"] == "flaky"]
    assert (submit["name"], submit["trace"], submit["parent"]) == ("submit flaky", TRACE, CALLER)
    assert submit["attributes"]["messaging.message.id"] == task["task_id"]
    assert (task["status"], task["attempts"], task["trace_id"]) == ("completed", 2, TRACE)
    assert task["traceparent"] == f"00-{TRACE}-{submit['id']}-01"
    first, second = [span for span in spans["worker"] if span["name"] == "run flaky"]
    for number, span in enumerate((first, second), start=1):
        assert (span["trace"], span["parent"], span["links"]) == (TRACE, submit["id"], [submit["id"]])
        assert span["attributes"]["fairlead.task.attempt"] == number
        assert span["attributes"]["messaging.message.id"] == task["task_id"]
    assert (first["events"], first["status"]) == (["exception", "retrying"], "ERROR")
    assert (second["events"], second["status"]) == ([], "UNSET")
    assert second["attributes"]["fairlead.task.status"] == "completed"
    inside = [span for span in spans["worker"] if span["name"] == "inside"]
    assert [span["parent"] for span in inside] == [first["id"], second["id"]], "what a handler traces is inside"

    for name in ("in_thread", "apart"):
        (run,) = [span for span in spans["worker"] if span["name"] == f"run {name}"]
        assert tasks[name]["result"] == f"{TRACE}-{run['id']}", "the span is the current one wherever a handler runs"
