"""Submitting, showing, listing, cancelling, replaying and discarding, as a script does it."""

from __future__ import annotations

import pytest

from fairlead.core.events import Failed
from fairlead.core.identity import WorkerId
from fairlead.core.task import Failure, State
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.task_shown import TaskBrief, TaskListed, TaskWhole
from tests.cli.running import Folder

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"


def fail_all(folder: Folder) -> None:
    """Let every ready task fail for good, as a worker would."""
    engine = folder.engine()
    failure = Failure(type="ValueError", message="no \x1b[31mgood", traceback="Traceback …\nValueError: no good")
    for task in run_inline(engine.claim(WorkerId("w"), ["default"], limit=100)):
        run_inline(engine.settle([Settlement(task, Failed(failure=failure))]))


def test_submit_writes_the_id_and_nothing_else_to_a_pipe(folder: Folder) -> None:
    submitted = folder.ok("submit", "echo", "message=hello")
    (task,) = folder.tasks()
    assert (submitted.out, submitted.err) == (f"{task.id}\n", "")


def test_submit_takes_every_option(folder: Folder) -> None:
    answer = folder.ok(
        *("submit", "render", "name=a b", "width=12345678901234567890", "ratio=1.50", 'list=["x"]', "zip=01234"),
        *("--priority", "normal", "--queue", "video", "--delay", "60", "--timeout", "1.5", "--max-retries", "7"),
        *("--requires", "gpu,eu", "--idempotency-key", "k 1", "--tag", "a,b", "--tag", "c", "--json"),
    ).json
    assert list(answer) == [*TaskBrief.__struct_fields__, "existing"]
    wanted: dict[str, object] = {"task_type": "render", "queue": "video", "priority": "medium", "status": "scheduled"}
    wanted |= {"max_retries": 7, "required_capabilities": ["eu", "gpu"], "tags": ["a", "b", "c"]}
    wanted |= {"timeout_seconds": 1.5, "idempotency_key": "k 1", "effective_priority": "medium"}
    assert wanted.items() <= answer.items() and answer["existing"] is False
    (task,) = folder.tasks()
    # Values are taken as they are written, to the digit.
    assert task.spec.parameters == (
        b'{"name":"a b","width":12345678901234567890,"ratio":1.50,"list":["x"],"zip":"01234"}'
    )
    again = folder.quick("submit", "render", "--queue", "video", "--idempotency-key", "k 1", "--json").json
    assert (again["task_id"], again["existing"]) == (answer["task_id"], True)


def test_parameters_may_be_one_document_and_a_moment_relative(folder: Folder) -> None:
    folder.submit("echo", "--params", '{"message": [1.0, null]}', "--run-at", "+2h")
    folder.submit("echo", "--run-at", "2100-01-01T00:00:00+01:00")
    first, second = folder.tasks()
    assert first.spec.parameters == b'{"message": [1.0, null]}'
    assert abs(first.status.ready_at - first.spec.created_at - 7_200_000_000) < 60_000_000
    assert second.status.ready_at == 4_102_441_200_000_000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "no type is named"),
        (("echo", "hello"), "'hello' is not key=value"),
        (("echo", "a=1", "a=2"), "'a' is given twice"),
        (("echo", "a=1", "--params", "{}"), "both given"),
        (("echo", "--params", "[1]"), "not a JSON object"),
        (("echo", "--priority", "hgih"), "priority 'hgih' is unknown"),
        (("echo", "--run-at", "tomorrow"), "is not a moment"),
        (("echo", "--delay", "inf"), "is not a number of seconds"),
        (("echo", "--delay", "1h"), "--delay: '1h' is not a number"),
        (("echo", "--delay", "1", "--run-at", "+1h"), "both given"),
        (("echo", "--max-retries", "many"), "--max-retries"),
        (("echo", "--priorty", "low"), "Did you mean --priority?"),
    ],
)
def test_a_submit_that_makes_no_sense_is_misuse(folder: Folder, arguments: tuple[str, ...], complaint: str) -> None:
    ended = folder.quick("submit", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert complaint in ended.error
    assert not (folder.path / "fairlead.db").exists() or folder.tasks() == []


def test_show_has_everything_and_nothing_that_acts_on_a_terminal(folder: Folder) -> None:
    task_id = folder.submit("echo", 'message={"b": 1, "a": 2}', "--max-retries", "0")
    fail_all(folder)
    shown = folder.ok("show", task_id, "--json").json
    assert list(shown) == list(TaskWhole.__struct_fields__)
    assert shown["status"] == "dead_letter" and shown["parameters"] == {"message": {"b": 1, "a": 2}}
    assert shown["error"]["traceback"].endswith("ValueError: no good")
    assert [each["status"] for each in shown["history"]] == ["queued", "executing", "dead_letter"]
    text = folder.ok("show", f"{task_id[:8]}-{task_id[8:]}".upper()).out
    for part in (task_id, "dead_letter (retries_used_up)", '"b": 1', "ValueError: no \\x1b[31mgood", "Traceback …"):
        assert part in text
    assert "\x1b" not in text
    for line in ("submitted", "started", "ended"):
        assert f"\n{line:<10} 20" in text and " ago\n" in text


def test_list_filters_and_pages(folder: Folder) -> None:
    ids = [folder.submit("echo", "--queue", queue, "--tag", queue) for queue in ("a", "b", "a")]
    assert [task["task_id"] for task in folder.ok("list", "--json").lines] == ids[::-1]
    assert list(folder.quick("list", "--json").lines[0]) == list(TaskListed.__struct_fields__)
    first = folder.quick("list", "--limit", "2", "--oldest-first")
    assert first.out.splitlines()[-1] == f"there are more: --cursor {ids[1]}"
    assert [line.split()[0] for line in first.out.splitlines()[1:-1]] == ids[:2]
    rest = folder.quick("list", "--limit", "2", "--oldest-first", "--cursor", ids[1])
    assert [line.split()[0] for line in rest.out.splitlines()] == ["ID", ids[2]]
    some = folder.quick(
        *("list", "--json", "--queue", "a", "--tag", "a", "--type", "echo", "--priority", "medium"),
        *("--state", "queued,scheduled", "--created-after", "-1h", "--created-before", "+1h"),
    )
    assert [task["task_id"] for task in some.lines] == [ids[2], ids[0]]
    assert folder.quick("list", "--worker", "nobody").out == "no task matches\n"
    for wrong in (("--state", "done"), ("--limit", "0"), ("--cursor", "x"), ("--created-after", "noon")):
        assert folder.quick("list", *wrong).code == 2


def test_a_change_of_priority_is_an_operation_by_ids_or_by_a_query(folder: Folder) -> None:
    one, two = (folder.ok("submit", "echo", "--priority", "low").out.strip() for _ in range(2))
    assert "prioritized 1 of 1" in folder.ok("prioritize", "high", one).out
    assert folder.ok("show", one, "--json").json["priority"] == "high"
    assert "would prioritize 1 tasks" in folder.ok("prioritize", "high", "-q", "type:echo", "--dry-run").out
    assert folder.ok("show", two, "--json").json["priority"] == "low"
    assert folder.quick("prioritize", "urgent", one).code == 2


def test_cancel_replay_and_discard_say_what_was_done_to_each(folder: Folder) -> None:
    one, two = (folder.submit("echo") for _ in range(2))
    missing = one[:-4] + ("0000" if not one.endswith("0000") else "1111")
    cancelled = folder.run("cancel", one, missing, two)
    assert cancelled.code == 1
    assert cancelled.out.splitlines() == [f"{one} cancelled", f"{two} cancelled"]
    assert cancelled.error.startswith(f"task {missing} not found")
    answer = folder.run("replay", one, missing, "--priority", "high", "--keep-retries", "--json")
    assert answer.code == 1
    assert [(task["task_id"], task["priority"], task["status"]) for task in answer.json["tasks"]] == [
        (one, "high", "queued")
    ]
    assert [error["task_id"] for error in answer.json["errors"]] == [missing]
    assert f"task {one} is queued: discard is possible only if" in folder.quick("discard", one).error
    assert folder.ok("discard", two).out == f"{two} discarded\n"
    assert [task.id for task in folder.tasks()] == [one]
    assert folder.quick("cancel", one, "not-an-id").code == 2
    assert folder.tasks()[0].state is State.QUEUED, "a mistake among the ids does nothing at all"
    assert folder.quick("cancel").code == 2


def test_stats_count_tasks_by_queue_priority_and_state(folder: Folder) -> None:
    folder.submit("echo", "--priority", "high")
    folder.submit("echo", "--queue", "mail", "--delay", "90")
    stats = folder.ok("stats", "--json").json
    assert stats["states"]["queued"] == stats["states"]["scheduled"] == 1
    default = stats["by_queue"]["default"]
    assert default["priorities"]["high"]["depth"] == 1 and default["priorities"]["high"]["oldest_age_seconds"] > 0
    assert stats["queues"]["high"] == default["priorities"]["high"]
    assert default["types"] == {"echo": 1} and stats["next_alarm"].endswith("Z")
    assert stats["workers"] == {**dict.fromkeys(stats["workers"], 0), "slots": {}}
    assert stats["throughput"] == {"completed_last_minute": 0, "failed_last_minute": 0}
    text = folder.quick("stats").out
    assert "no workers" in text
    assert text.startswith("1 scheduled  1 queued\nno workers\nnext task due, or lease or retention ending, in ")
    assert "\nunserved: 1 in queue default, as no worker is running\n" in text
    assert "\ndefault  high" in text


def test_a_task_waits_for_others_and_says_so(folder: Folder) -> None:
    first = folder.ok("submit", "echo").out.strip()
    second = folder.quick("submit", "echo").out.strip()
    last = folder.quick("submit", "echo", "--after", f"{first},{second}", "--on-failure", "run_anyway", "--json").json
    assert (last["status"], last["pending"], last["on_failure"]) == ("scheduled", 2, "run_anyway")
    shown = folder.quick("show", last["task_id"]).out
    assert f"{first}, {second}; 2 of 2 have not ended" in shown
    assert folder.quick("show", last["task_id"], "--json").json["after"] == [first, second]
    assert folder.quick("cancel", first).code == folder.quick("cancel", second).code == 0
    (task,) = [task for task in folder.tasks() if task.id == last["task_id"]]
    assert (task.state, task.status.unmet) == (State.QUEUED, 2)
    assert "2 did not complete, so run_anyway" in folder.quick("show", last["task_id"]).out


def test_what_cannot_be_waited_for_is_named(folder: Folder) -> None:
    unknown = "019a85f3c2d08000a3d25f1e9c7b4a60"
    refused = folder.quick("submit", "echo", "--after", unknown)
    assert refused.code != 0
    assert f"after names task {unknown}, which is not stored" in refused.err
