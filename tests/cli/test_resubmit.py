"""What `list --json` prints, `submit --from-file` takes: beside the store, over a server, and from one to the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from fairlead.cli.commands.submit_file import LINE, SHOWN
from fairlead.wire.tasks import HTTP_NAMES
from tests.cli.running import Folder

FULL: Final[dict[str, Any]] = {
    "task_type": "render",
    "parameters": {"ratio": 1, "name": "ä"},
    "priority": "high",
    "queue": "video",
    "required_capabilities": ["eu", "gpu"],
    "timeout_seconds": 1.5,
    "max_retries": 7,
    "max_crashes": 2,
    "retry_policy": {"initial_seconds": 5.0, "factor": 3.0, "max_seconds": 60.0, "jitter": 0.0},
    "retry_rules": [{"error": "ValueError", "reject": True}, {"error": "*", "max_retries": 4}],
    "run_at": "2100-01-01T00:00:00.000000Z",
    "expires_seconds": 90.0,
    "retention": {"completed_seconds": 60.0, "failed_seconds": 120.0},
    "idempotency_key": "order 7",
    "tenant": "acme",
    "tags": ["b", "a"],
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "concurrency_key": "user 7",
}
"""A submit that says everything there is to say, but for a delay, which is a moment, and tasks to wait for."""


@pytest.fixture(params=["sqlite", "server"])
def store(request: pytest.FixtureRequest, folder: Folder) -> Iterator[tuple[str, ...]]:
    """How to name the store: itself, or a server in front of it."""
    if request.param == "sqlite":
        yield ()
        return
    folder.quick("submit", "--from-file", str(folder.write("none", "")))
    with folder.start("serve", "--port", "0", "--json") as server:
        (line,) = server.find('"url"')
        yield ("--store", json.loads(line)["url"])


def submitted(task: dict[str, Any]) -> dict[str, Any]:
    """What a listed task was submitted with."""
    return {name: task[name] for name in LINE if name in task}


def test_every_field_of_a_submit_comes_back_in_a_list(folder: Folder, store: tuple[str, ...]) -> None:
    # A fair key is kept where fair keys share the queue.
    assert set(FULL) == set(LINE) - {"delay_seconds", "after", "on_failure", "fair_key"}
    folder.ok("submit", "--from-file", "-", *store, stdin=json.dumps(FULL))
    (task,) = folder.ok("list", "--json", *store).lines
    assert submitted(task) == FULL | {"after": [], "on_failure": None, "fair_key": None}


def test_a_fair_key_comes_back_too(folder: Folder) -> None:
    said = folder.run("queues", "set", "default", "--fair", "tenant")
    if said.code:
        pytest.skip(said.err)
    folder.ok("submit", "--from-file", "-", stdin='{"task_type": "echo", "fair_key": "other"}')
    listed = folder.ok("list", "--json").out
    folder.ok("submit", "--from-file", "-", stdin=listed)
    assert [task["fair_key"] for task in folder.ok("list", "--json").lines] == ["other", "other"]


def test_a_list_makes_the_same_tasks_elsewhere(folder: Folder, store: tuple[str, ...]) -> None:
    lines = [json.dumps(FULL), '{"task_type": "echo", "parameters": {"ratio":  1.50}}', '{"task_type": "echo"}']
    folder.ok("submit", "--from-file", "-", *store, stdin="\n".join(lines))
    listed = folder.ok("list", "--json", "--oldest-first", *store)
    elsewhere = ("--store", "sqlite:///other.db")
    assert folder.ok("submit", "--from-file", "-", *elsewhere, stdin=listed.out).out == "3 submitted\n"
    copies = folder.ok("list", "--json", "--oldest-first", *elsewhere)
    assert list(map(submitted, copies.lines)) == list(map(submitted, listed.lines))
    assert folder.tasks("other.db")[1].spec.parameters == b'{"ratio":  1.50}', "to the digit"
    assert not {task["task_id"] for task in copies.lines} & {task["task_id"] for task in listed.lines}
    # And back, where the key is still known.
    back = folder.ok("submit", "--from-file", "-", *store, stdin=copies.out)
    assert back.out == "2 submitted, 1 existed already\n"
    assert len(folder.ok("list", "--json", *store).lines) == 5


def test_what_became_of_a_task_is_not_submitted(folder: Folder) -> None:
    task_id = folder.submit("echo", "a=1")
    folder.quick("cancel", task_id)
    for shown in (folder.quick("list", "--json"), folder.quick("show", task_id, "--json")):
        (again,) = folder.ok("submit", "--from-file", "-", "--json", stdin=shown.out).lines
        assert (again["status"], again["completed_at"], again["existing"]) == ("queued", None, False)
    assert [task.spec.parameters for task in folder.tasks()] == [b'{"a":1}'] * 3


def test_a_new_task_waits_for_the_same_tasks(folder: Folder) -> None:
    first = folder.submit("echo")
    second = folder.submit("echo", "--after", first, "--on-failure", "run_anyway")
    shown = folder.quick("show", second, "--json").out
    (again,) = folder.ok("submit", "--from-file", "-", "--json", stdin=shown).lines
    assert (again["pending"], again["on_failure"]) == (1, "run_anyway")
    refused = folder.run("submit", "--from-file", "-", "--store", "sqlite:///other.db", stdin=shown)
    assert refused.code == 1 and f"after names task {first}, which is not stored" in refused.err


def test_a_dead_letter_is_such_a_line_too(folder: Folder) -> None:
    folder.submit("echo", "a=1")
    shown = folder.quick("dlq", "list", "-q", "state:queued", "--json")
    assert folder.ok("submit", "--from-file", "-", stdin=shown.out).out == "1 submitted\n"


@pytest.mark.parametrize("python", HTTP_NAMES)
def test_a_name_of_python_is_read_and_the_other_one_is_answered(folder: Folder, python: str) -> None:
    http = HTTP_NAMES[python]
    value = {"delay": 60, "trace": "my own"}.get(python, FULL.get(http))
    line = {"task_type": "render"} if python != "type" else {}
    (answer,) = folder.ok("submit", "--from-file", "-", "--json", stdin=json.dumps(line | {python: value})).lines
    assert python not in answer
    (listed,) = folder.quick("list", "--json").lines
    assert listed["run_at"] is not None if python == "delay" else listed[http] == value


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"task_type": "a", "type": "a"}, "says task_type and type, which mean the same; leave type out"),
        ({"task_type": "a", "timeout": 1, "timeout_seconds": 1}, "says timeout_seconds and timeout"),
        ({"task_type": "a", "parameters": {}, "attempts": 1}, "field 'attempts' tells how a task stands"),
        ({"task_type": "a", "task_id": "mine"}, "field 'task_id' tells how a task stands"),
        ({"task_type": "a", "task_id": "mine", "status": "queued"}, "the line is a task without its parameters"),
        ({"task_typ": "a"}, "field 'task_typ' is unknown; did you mean task_type?"),
        ({"task_type": "a", "timout": 5}, "field 'timout' is unknown; did you mean timeout_seconds?"),
        ({"task_type": "a", "existing": False}, "field 'existing' is unknown"),
    ],
)
def test_a_line_that_could_mean_something_else_is_refused(folder: Folder, line: dict[str, Any], complaint: str) -> None:
    refused = folder.run("submit", "--from-file", "-", stdin=json.dumps(line))
    assert refused.code == 1 and complaint in refused.err
    assert folder.tasks() == []


def test_what_a_line_passes_over_is_no_field_of_a_submit() -> None:
    assert not set(SHOWN) & {*LINE, *LINE.values()}
