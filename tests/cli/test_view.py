"""What `fairlead top` shows, from what it has seen to lines."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from fairlead.cli.commands.top import KEPT, Survey, TopView, first_view, frame, sparkline, whole
from fairlead.core.identity import LeaseToken, TaskId, WorkerId
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.task import Failure, Lease, Priority, Reason, Spec, State, Status, Task
from fairlead.engine.metrics.throughput import Throughput
from fairlead.engine.stats import LineStats, QueueStats, Stats, WorkerStats
from fairlead.engine.worker_records import WorkerRecord, WorkerState

NOW = 1_800_000_000_000_000  # 08:00:00 UTC
STORE = "redis://cache.example.org"


def queue(*depths: int, oldest: int = 0, paused: bool = False) -> QueueStats:
    lines = {
        priority: LineStats(depth=depth, oldest_age=oldest if depth else 0)
        for priority, depth in zip(Priority, depths, strict=True)
    }
    states = dict.fromkeys(State, 0) | {State.QUEUED: sum(depths)}
    return QueueStats(lines=lines, states=states, types={}, paused=paused)


def worker(name: str, state: WorkerState = WorkerState.ACTIVE, running: int = 0) -> WorkerRecord:
    seen = NOW - 5 * SECOND
    return WorkerRecord(
        id=WorkerId(name), name=name, queues=("mail",), capacity=50, running=running, state=state, since=0, seen_at=seen
    )


def task(number: int, state: State, *, task_type: str = "send_mail", error: str = "", ago: int = 0) -> Task:
    spec = Spec(
        id=TaskId(f"{number:032x}"), queue="mail", type=task_type, parameters=b"{}", created_at=0, timeout=MINUTE,
        max_retries=0, max_crashes=0,
    )  # fmt: skip
    running = state is State.EXECUTING
    status = Status(
        state=state,
        priority=Priority.MEDIUM,
        ready_at=0,
        timeout=MINUTE,
        reason=Reason.RETRIES_USED_UP,
        started_at=NOW - ago * SECOND if running else 0,
        ended_at=None if running else NOW - ago * SECOND,
        lease=Lease(token=LeaseToken("t"), worker=WorkerId("node-1"), until=NOW) if running else None,
        failure=Failure(type="Boom", message=error) if error else None,
    )
    return Task(spec, status)


def a_survey(queues: int = 2, workers: int = 2, tasks: int = 2) -> Survey:
    """A survey with so many rows of each kind."""
    stats = Stats(
        queues={f"queue-{number}": queue(0, number, 20, 0, oldest=90 * SECOND) for number in range(queues)},
        states=dict.fromkeys(State, 0) | {State.QUEUED: 41, State.EXECUTING: 7},
        next_alarm=None,
        workers=WorkerStats(active=workers, total_capacity=100, used_capacity=7),
        throughput=Throughput(completed=1200, failed=3),
    )
    return Survey(
        at=NOW,
        stats=stats,
        workers=tuple(worker(f"node-{number}", running=number) for number in range(workers)),
        running=tuple(task(number, State.EXECUTING, ago=60 - number) for number in range(tasks)),
        failed=tuple(task(number, State.DEAD_LETTER, error="it went boom", ago=10) for number in range(tasks)),
    )


def a_view(survey: Survey | None = None) -> TopView:
    return first_view(STORE, 2 * SECOND, survey or a_survey(), NOW)


def text(view: TopView, width: int = 100, height: int = 40, now: int = NOW) -> list[str]:
    return ["".join(cell.text for cell in line) for line in frame(view, now, width, height)]


def test_a_screen_full_has_queues_throughput_workers_long_tasks_and_errors() -> None:
    assert text(a_view()) == [
        "fairlead top q quits  08:00:00 UTC, every 2 s  redis://cache.example.org",
        "41 queued  7 executing",
        "workers: 2 active; 7 of 100 slots used; 1,200 completed and 3 failed in the last minute",
        "completed █ 1,200 a minute",
        "failed    █ 3 a minute",
        "",
        "QUEUE    CRITICAL  HIGH  MEDIUM  LOW  OLDEST  RUNNING  STATE",
        "queue-1         0     1      20    0     90s        0",
        "queue-0         0     0      20    0     90s        0",
        "",
        "WORKER  STATE   RUNNING  DONE/MIN  FAILED/MIN  QUEUES    SEEN",
        "node-1  active     1/50         0           0  mail    5s ago",
        "node-0  active     0/50         0           0  mail    5s ago",
        "",
        "RUNS FOR  TYPE       QUEUE  WORKER  ID",
        "     60s  send_mail  mail   node-1  00000000000000000000000000000000",
        "     59s  send_mail  mail   node-1  00000000000000000000000000000001",
        "",
        " FAILED  TYPE       ID                                ERROR",
        "10s ago  send_mail  00000000000000000000000000000000  Boom: it went boom",
        "10s ago  send_mail  00000000000000000000000000000001  Boom: it went boom",
    ]


def test_all_rows_are_written_once_for_a_script_and_a_store_without_anything_says_so() -> None:
    lines = ["".join(cell.text for cell in line) for line in whole(STORE, a_survey(100, 100, 20), None)]
    assert lines[0] == f"{STORE}  08:00:00 UTC" and len(lines) == 3 + 4 * 2 + 100 + 100 + 20 + 20
    nothing = Stats(queues={}, states=dict.fromkeys(State, 0), next_alarm=None)
    empty = whole(STORE, Survey(at=NOW, stats=nothing, workers=(), running=(), failed=()), None)
    assert ["".join(cell.text for cell in line) for line in empty[1:]] == ["no tasks", "no workers"]


@pytest.mark.parametrize("width", [1, 7, 20, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 2, 5, 9, 12, 24, 60])
def test_no_picture_is_larger_than_its_terminal(width: int, height: int) -> None:
    wide = task(9, State.FAILED, task_type="漢字" * 60, error="🙂" * 100)
    view = a_view(replace(a_survey(30, 30, 20), failed=(wide,) * 5)).missed("gone", NOW)
    drawn = text(view, width, height)
    assert len(drawn) <= height
    assert max(map(cell_len, drawn)) <= width


def test_rows_without_room_are_counted_and_each_table_keeps_some() -> None:
    drawn = text(a_view(a_survey(30, 3, 20)), height=24)
    assert len(drawn) == 24
    assert [line for line in drawn if line.startswith("…")] == ["… 28 more", "… 18 more", "… 19 more"]
    assert all(
        any(line.lstrip().startswith(title) for line in drawn) for title in ("QUEUE", "WORKER", "RUNS", "FAILED")
    )


def test_what_is_narrow_keeps_what_matters() -> None:
    drawn = text(a_view(), width=50)
    assert "QUEUE    CRITICAL  HIGH  MEDIUM  LOW  OLDEST" in drawn
    assert "WORKER  STATE   RUNNING    SEEN" in text(a_view(), width=34)


def test_trouble_comes_first() -> None:
    held = replace(worker("held"), paused=True)
    workers = (
        worker("busy", running=9),
        held,
        worker("gone", WorkerState.DEAD),
        worker("leaving", WorkerState.DRAINING),
    )
    survey = replace(a_survey(), workers=workers)
    stats = replace(survey.stats, queues={"a": queue(0, 0, 0, 0), "z": queue(0, 0, 0, 9), "p": queue(1, 0, 0, 0)})
    drawn = text(a_view(replace(survey, stats=stats)))
    assert [line.split()[0] for line in drawn[7:10]] == ["z", "p", "a"]
    assert [line.split()[0] for line in drawn[12:16]] == ["gone", "leaving", "held", "busy"]
    assert drawn[14].split()[1] == "paused"


def test_the_throughput_is_drawn_over_time_and_not_for_ever() -> None:
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert (sparkline([]), sparkline([0, 0])) == ("", "▁▁")
    view = a_view()
    for number in range(2 * KEPT):
        stats = replace(view.survey.stats, throughput=Throughput(completed=number))
        view = view.seen(replace(view.survey, stats=stats), NOW)
    assert len(view.history) == KEPT and view.history[-1].completed == 2 * KEPT - 1
    assert "completed " + sparkline(range(60, 120)) + " 119 a minute" in text(view)


def test_a_store_that_is_lost_is_said_so_from_when_it_was_lost_with_how_things_stood() -> None:
    lost = a_view().missed("refused\nit", NOW + 5 * SECOND).missed("still refused", NOW + 7 * SECOND)
    drawn = frame(lost, NOW + 8 * SECOND, 100, 40)
    assert drawn[1][0].text == "out of reach since 08:00:05 UTC, trying again: still refused"
    assert {cell.style for line in drawn[2:] for cell in line} == {"dim"}
    assert "queue-1" in "".join(cell.text for line in drawn for cell in line)


def test_why_it_is_lost_can_be_read_on_a_narrow_terminal() -> None:
    drawn = text(a_view().missed(f"{STORE} refused the connection; see whether it is up", NOW), width=40)
    assert " ".join(drawn[1:4]).endswith("refused the connection; see whether it is up")
    assert drawn[4] == "41 queued  7 executing"


def test_that_it_is_back_is_said_for_a_minute() -> None:
    lost = a_view().missed("refused", NOW)
    back = lost.seen(a_survey(), NOW + 30 * SECOND)
    assert text(back, now=NOW + 31 * SECOND)[1] == "reached again at 08:00:30 UTC, after 30s: refused"
    later = back.seen(a_survey(), NOW + 89 * SECOND)
    assert text(later, now=NOW + 89 * SECOND)[1].startswith("reached again at 08:00:30 UTC")
    assert text(later, now=NOW + 90 * SECOND)[1] == "41 queued  7 executing"
    again = later.missed("refused again", NOW + 100 * SECOND)
    assert text(again, now=NOW + 100 * SECOND)[1].startswith("out of reach since 08:01:40 UTC")


def test_a_store_that_does_not_answer_is_said_so() -> None:
    assert text(a_view(), now=NOW + 7 * SECOND)[1] == "41 queued  7 executing"
    assert text(a_view(), now=NOW + 8 * SECOND)[1] == "no answer for 8s"


def test_nothing_that_tasks_say_acts_on_the_terminal() -> None:
    hostile = task(1, State.FAILED, task_type="a\x1b[2Jb", error="\x1b]0;title\x07\r\n\tnext\u202e")
    drawn = text(a_view(replace(a_survey(), failed=(hostile,))).missed("\x1b[31m", NOW))
    joined = "".join(drawn)
    assert not [sign for sign in joined if ord(sign) < 32 or sign == "\u202e"]
    assert "a\\x1b[2Jb" in joined and "\\x1b]0;title\\x07" in joined
