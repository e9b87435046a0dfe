"""`dlq`, `operations` and queries on the command line."""

from __future__ import annotations

import io
import signal
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.core.task import State, Task
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder, until
from tests.engine.stocking import a_dead_letter


def stocked(folder: Folder, count: int = 6, **how: Any) -> list[Task]:
    """Dead letters in the folder's store, which end a minute ago by the real clock."""
    folder.ok("submit", "echo", "--delay", "3600")
    engine = folder.engine()
    now = engine.clock.now()
    made = []
    for number in range(count):
        task = a_dead_letter(number, **how)
        alarm = now + 10**12
        status = replace(task.status, ended_at=now - 60_000_000 + number, alarm=alarm, ready_at=now - 10**8)
        made.append(Task(replace(task.spec, created_at=now - 10**8), status))
    run_inline(engine.store.add(made, now=now, bounds={}))
    return made


def states(folder: Folder) -> dict[State, int]:
    counts: dict[State, int] = {}
    for task in folder.tasks():
        if task.spec.type != "echo":
            counts[task.state] = counts.get(task.state, 0) + 1
    return counts


def test_tasks_are_listed_by_a_query(folder: Folder) -> None:
    tasks = stocked(folder)

    listed = folder.quick("list", "-q", "params.user_id:2,3 -tag:eu", "--json")
    assert [task["task_id"] for task in listed.lines] == [tasks[3].id, tasks[2].id]
    assert folder.quick("list", "-q", "queue:nowhere").out == "no task matches\n"
    page = folder.quick("list", "-q", "error:unknown", "--limit", "4").out
    assert f"there are more: --cursor {tasks[2].id}" in page
    assert folder.quick("list", "-q", "-state:dead_letter", "--json").lines[0]["task_type"] == "echo"


def test_a_mistake_in_a_query_gets_carets_under_it(folder: Folder) -> None:
    stocked(folder, 1)

    ended = folder.quick("list", "-q", "queue:a sate:failed")
    assert ended.code == 2
    message, query, carets = ended.err.splitlines()
    assert message.startswith("fairlead: there is no field 'sate'; did you mean state?")
    assert (query, carets) == ("  queue:a sate:failed", "          ^^^^")
    as_json = folder.quick("dlq", "replay", "-q", "state:x", "--json")
    assert as_json.code == 2 and '"pointer":"state:x\\n      ^"' in as_json.err


def test_dead_letters_are_listed_shown_and_grouped(folder: Folder) -> None:
    tasks = stocked(folder)

    listed = folder.quick("dlq", "list")
    assert [line.split()[0] for line in listed.out.splitlines()[1:]] == [task.id for task in reversed(tasks)]
    assert "KeyError: user 5 is unknown" in listed.out
    assert "KeyError: user 1 is unknown" in folder.quick("dlq", "show", tasks[1].id).out
    grouped = folder.quick("dlq", "groups", "--json").json
    (group,) = grouped["groups"]
    assert (group["count"], group["pattern"], group["task_id"]) == (6, "user <n> is unknown", tasks[5].id)
    text = folder.quick("dlq", "groups", "-q", "params.user_id:<3").out
    assert text.startswith("3 send_mail\n") and group["fingerprint"] in text
    folder.write("fairlead.toml", "dead_letter_alert = 100\ndead_letter_alerts = ['send_mail:6']\n")
    assert folder.quick("dlq", "groups").out.startswith("6 send_mail, at least the 6 from which on to alert\n")


def test_a_wrong_alert_is_refused(folder: Folder) -> None:
    stocked(folder, 1)
    folder.write("fairlead.toml", "dead_letter_alerts = ['send_mail']\n")

    assert "use a type and a number: send_mail:100" in folder.quick("dlq", "groups").error


def test_a_replay_by_a_query_is_tried_dry_then_done(folder: Folder) -> None:
    stocked(folder)

    dry = folder.quick("dlq", "replay", "-q", "params.user_id:>0", "--dry-run")
    assert dry.out.startswith("would replay 5 tasks that match params.user_id:>0 state:dead_letter\n")
    (*_, as_of, _, expected) = dry.out.splitlines()[-1].split()
    assert states(folder) == {State.DEAD_LETTER: 6}
    wrong = folder.quick("dlq", "replay", "-q", "params.user_id:>0", "--as-of", as_of, "--expect", "4")
    assert wrong.code == 1 and "5 tasks match, not 4" in wrong.error
    done = folder.quick(
        "dlq", "replay", "-q", "params.user_id:>0", "--as-of", as_of, "--expect", expected, "--priority", "low"
    )
    assert done.code == 0 and "done: replayed 5 of 5" in done.out
    assert states(folder) == {State.DEAD_LETTER: 1, State.QUEUED: 5}


def test_a_canary_waits_to_be_resumed(folder: Folder) -> None:
    stocked(folder)

    shown = folder.quick("dlq", "discard", "-q", "type:send_mail", "--canary", "2", "--yes", "--json").json
    assert (shown["status"], shown["done"]) == ("paused", 2)
    assert states(folder) == {State.DEAD_LETTER: 4}
    (listed,) = folder.quick("operations", "list", "--json").lines
    assert listed["operation_id"] == shown["operation_id"]
    assert "paused" in folder.quick("operations", "list").out
    assert "the canary of 2 is done" in folder.quick("operations", "show", shown["operation_id"]).out
    resumed = folder.quick("operations", "resume", shown["operation_id"])
    assert "done: discarded 6 of 6" in resumed.out
    assert states(folder) == {}
    assert folder.quick("operations", "cancel", shown["operation_id"]).code == 1


def test_one_that_is_left_to_others_is_paused_and_cancelled(folder: Folder) -> None:
    stocked(folder)
    begun = folder.quick(
        "dlq", "replay", "-q", "type:send_mail", "--detach", "--max-rate", "60/m", "--yes", "--json"
    ).json

    assert (begun["status"], begun["rate"]) == ("pending", 1.0)
    assert folder.quick("operations", "pause", begun["operation_id"], "--json").json["status"] == "paused"
    assert folder.quick("operations", "cancel", begun["operation_id"], "--json").json["status"] == "cancelled"
    assert states(folder) == {State.DEAD_LETTER: 6}
    assert "operation nobody not found" in folder.quick("operations", "show", "nobody").error


def test_interrupting_it_pauses_it_and_says_so(folder: Folder) -> None:
    stocked(folder)
    with folder.start("dlq", "replay", "-q", "type:send_mail", "--max-rate", "1/m", "--yes") as program:
        until(lambda: states(folder).get(State.QUEUED) == 1)
        program.send(signal.SIGINT)
        assert program.wait() == 130
        (said,) = program.find("is paused after 1 of 6")
    assert "fairlead operations resume" in said
    (operation,) = folder.quick("operations", "list", "--json").lines
    assert (operation["status"], operation["done"]) == ("paused", 1)


def test_a_worker_does_what_was_left_to_it(folder: Folder) -> None:
    stocked(folder)
    folder.quick("dlq", "discard", "-q", "type:send_mail", "--detach", "--yes")

    with folder.start("worker", "builtin", "--sweep-interval-seconds", "0.05") as program:
        until(lambda: states(folder) == {})
        program.send(signal.SIGTERM)
        assert program.wait() == 0


def test_tasks_are_cancelled_by_a_query(folder: Folder) -> None:
    for _ in range(3):
        folder.submit("spam", "--queue", "bulk")
    kept = folder.submit("ham", "--queue", "bulk")

    assert folder.quick("cancel", "-q", "type:spam", "--dry-run", "--json").json["count"] == 3
    assert "done: cancelled 3 of 3" in folder.quick("cancel", "-q", "type:spam", "--yes").out
    assert [task.id for task in folder.tasks() if task.state is State.QUEUED] == [kept]


class Terminal(io.StringIO):
    """A person at the keyboard."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("command", "warning"),
    [
        (("replay",), "They will be queued again."),
        (("discard",), "They will be removed, and that cannot be undone."),
        (("dlq", "replay"), "They will be queued again."),
        (("dlq", "discard"), "They will be removed, and that cannot be undone."),
    ],
)
def test_a_person_confirms_the_number_of_tasks(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], warning: str
) -> None:
    stocked(folder)
    query = ("-q", "type:send_mail state:dead_letter")
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    refused = folder.quick(*command, *query)
    assert (refused.code, refused.out) == (1, "nothing was done\n")
    assert refused.err == (f"6 tasks match type:send_mail state:dead_letter. {warning}\nType 6 to {command[-1]} them: ")
    assert states(folder) == {State.DEAD_LETTER: 6}
    monkeypatch.setattr(sys, "stdin", Terminal("6\n"))
    assert "6 of 6" in folder.quick(*command, *query).out
    assert State.DEAD_LETTER not in states(folder)


def test_a_cancel_by_a_query_is_confirmed_too(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.submit("spam")
    monkeypatch.setattr(sys, "stdin", Terminal("1\n"))
    done = folder.quick("cancel", "-q", "type:spam")
    assert "those that run will be asked to stop.\nType 1 to cancel them: " in done.err
    assert "done: cancelled 1 of 1" in done.out


def test_only_what_was_shown_is_done(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    stocked(folder, 2)

    class Slow(Terminal):
        def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
            (one, *_) = [task for task in folder.tasks() if task.state is State.DEAD_LETTER]
            run_inline(folder.engine().discard(one.id))
            return "2\n"

    monkeypatch.setattr(sys, "stdin", Slow())
    refused = folder.quick("dlq", "replay", "-q", "type:send_mail")
    assert refused.code == 1 and "1 tasks match, not 2 as expected" in refused.err
    assert states(folder) == {State.DEAD_LETTER: 1}


def test_a_script_must_say_that_it_means_many(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    stocked(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for command in (["replay"], ["discard"], ["cancel"], ["dlq", "replay"], ["dlq", "discard"]):
        ended = folder.quick(*command, "-q", "type:send_mail")
        assert ended.code == 2 and "no terminal to ask on" in ended.error and "--yes" in ended.error
    assert states(folder) == {State.DEAD_LETTER: 6}
    assert "replayed 6 of 6" in folder.quick("replay", "-q", "type:send_mail", "--expect", "6").out


def test_what_is_asked_for_wrongly_is_refused(folder: Folder) -> None:
    task_id = folder.submit("spam")
    for arguments, said in (
        (["dlq", "replay"], "no task is named"),
        (["cancel"], "no task is named"),
        (["cancel", task_id, "-q", "type:spam"], "both ids and a query"),
        (["cancel", task_id, "--dry-run"], "need --query"),
        (["cancel", "-q", "type:spam", "--max-rate", "fast"], "is not a rate"),
    ):
        ended = folder.quick(*arguments)
        assert ended.code == 2 and said in ended.error
    assert "would cancel everything" in folder.quick("cancel", "-q", "", "--yes").error


def test_single_dead_letters_are_replayed_and_discarded_by_their_ids(folder: Folder) -> None:
    first, second, *_ = stocked(folder)

    assert folder.quick("dlq", "replay", first.id).out == f"{first.id} queued\n"
    assert folder.quick("dlq", "discard", second.id).out == f"{second.id} discarded\n"
    assert states(folder) == {State.DEAD_LETTER: 4, State.QUEUED: 1}
