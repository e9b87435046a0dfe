"""A file full of tasks: good lines are stored whatever the others are like."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import Folder

LINES = [
    '{"type": "echo", "parameters": {"message": 1.50}, "priority": "high", "queue": "q", "requires": ["gpu"]}',
    '{"typ": "echo"}',
    "",
    "not json",
    '{"type": "echo", "priority": "hgih"}',
    '{"type": "echo", "parameters": [1]}',
    '{"parameters": {}}',
    '{"type": "echo", "timeout": "soon"}',
    '{"type": "echo", "run_at": "+1h", "tags": ["x"], "timeout": 5, "max_retries": 0, "idempotency_key": "k"}',
    '{"type": "echo", "idempotency_key": "k", "queue": null}',
]


def write_lines(folder: Folder) -> Path:
    return folder.write("tasks.jsonl", "\n".join(LINES) + "\n")


def test_each_bad_line_is_reported_and_the_others_are_stored(folder: Folder) -> None:
    write_lines(folder)
    ended = folder.run("submit", "--from-file", "tasks.jsonl")
    assert ended.code == 1
    assert ended.out == "2 submitted, 1 existed already, 6 refused\n"
    complaints = ended.err.splitlines()
    for complaint, (number, reason) in zip(
        complaints,
        [
            (2, "field 'typ' is unknown; did you mean task_type?"),
            (4, "the line is not a JSON object"),
            (5, "priority 'hgih' is unknown"),
            (6, "parameters is not a JSON object"),
            (7, "the line names no type"),
            (8, "timeout 'soon' is not a number of seconds; use one such as 2.5"),
        ],
        strict=True,
    ):
        assert complaint.startswith(f"fairlead: tasks.jsonl, line {number}: ") and reason in complaint
    first, second = folder.tasks()
    assert first.spec.parameters == b'{"message": 1.50}' and first.spec.requires == ("gpu",)
    assert second.spec.tags == ("x",) and second.spec.timeout == 5_000_000


def test_options_apply_to_lines_that_do_not_say_otherwise(folder: Folder) -> None:
    write_lines(folder)
    options = ("--queue", "bulk", "--priority", "low", "--delay", "60", "--json")
    ended = folder.run("submit", "sleep", "--from-file", "-", *options, stdin=(folder.path / "tasks.jsonl").read_text())
    assert (ended.code, ended.err) == (1, "")
    answers = {answer["line"]: answer for answer in ended.lines}
    assert sorted(answers) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert [number for number, answer in answers.items() if "error" in answer and len(answer) == 2] == [2, 4, 5, 6, 8]
    assert (answers[1]["queue"], answers[1]["priority"], answers[1]["status"]) == ("q", "high", "scheduled")
    assert (answers[7]["task_type"], answers[7]["queue"], answers[7]["priority"]) == ("sleep", "bulk", "low")
    assert answers[10]["existing"] is True and answers[10]["task_id"] == answers[9]["task_id"]


def test_many_lines_go_in_batches(folder: Folder) -> None:
    ended = folder.ok("submit", "--from-file", "-", stdin='{"type":"echo"}\n' * 2_500)
    assert ended.out == "2,500 submitted\n"
    assert folder.quick("stats", "--json").json["states"]["queued"] == 2_500


def test_a_file_cannot_be_mixed_with_one_task_or_be_absent(folder: Folder) -> None:
    assert folder.quick("submit", "echo", "a=1", "--from-file", "x").code == 2
    assert folder.quick("submit", "echo", "--wait", "--from-file", "x").code == 2
    assert "'x' cannot be read: No such file" in folder.quick("submit", "--from-file", "x").error
