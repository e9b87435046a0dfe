"""`explain`, `watch`, and the warning of a submit that nobody could run."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.cli.commands.watch import Lines, LiveBar, follow, live
from fairlead.core.errors import StoreUnavailable
from fairlead.core.events import Completed, Failed
from fairlead.core.explain.explanation import Explanation
from fairlead.core.identity import TaskId, WorkerId
from fairlead.core.task import Failure, Progress, State, Task
from fairlead.engine.engine import Settlement
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.values import Beat
from fairlead.wire.explanations import ExplanationShown
from fairlead.wire.task_shown import TaskBrief
from tests.cli.running import Folder
from tests.server.serving import NOBODY

WORKER = WorkerId("mail-1")


def join(folder: Folder, **what: object) -> None:
    about: dict[str, object] = {"queues": ["default"], "capacity": 4} | what
    run_inline(folder.engine().worker_records.register(WORKER, **about))  # type: ignore[arg-type]


def claim(engine: AdminEngine) -> Task:
    (task,) = run_inline(engine.claim(WORKER, ["default"], limit=1))
    return task


class TestExplain:
    def test_a_waiting_task(self, folder: Folder) -> None:
        folder.submit("echo", "--priority", "high")
        task_id = folder.submit("echo", "--priority", "low")
        join(folder)
        said = folder.ok("explain", task_id).out
        for part in ("position   2\n", ", to medium\n", "turns      from 20", "1 could take it", "start      20"):
            assert part in said
        assert "because    1 task is ahead of it, as they are treated: 1 high\n" in said
        shown = folder.quick("explain", task_id, "--json").json
        assert list(shown) == list(ExplanationShown.__struct_fields__)
        assert shown["line"]["position"] == 2

    def test_an_ended_one_and_a_scheduled_one(self, folder: Folder) -> None:
        task_id = folder.submit("echo")
        engine = folder.engine()
        run_inline(engine.settle([Settlement(claim(engine), Completed(None))]))
        said = folder.quick("explain", task_id).out
        assert "attempt 1 began" in said and "it completed after 1 attempt" in said and "position" not in said
        later = folder.quick("explain", folder.submit("echo", "--delay", "3600")).out
        assert "because    it was submitted to run later, and is due in 60m\n" in later
        assert "none could take it" in later and "no worker is running" in later

    def test_no_such_task(self, folder: Folder) -> None:
        folder.submit("echo")
        assert folder.quick("explain", NOBODY).code == 1
        assert folder.quick("explain", "nonsense").code == 2


class TestTheWarningOfASubmit:
    def test_a_type_that_no_worker_knows(self, folder: Folder) -> None:
        folder.submit("echo")
        join(folder, types=["other"])
        ended = folder.quick("submit", "echo")
        assert ended.code == 0 and len(ended.out.split()) == 1
        assert ended.err.startswith("fairlead: warning: the task waits until a worker can run it: no worker of queue")
        as_json = folder.quick("submit", "echo", "--json")
        assert json.loads(as_json.err)["code"] == "type_unknown" and as_json.json["status"] == "queued"
        folder.write("tasks.jsonl", '{"type": "echo"}\n' * 3 + '{"type": "other"}\n')
        many = folder.quick("submit", "--from-file", "tasks.jsonl")
        assert many.code == 0 and many.err.count("warning") == 1

    def test_no_worker_at_all_is_said_to_who_waits(self, folder: Folder) -> None:
        assert folder.quick("submit", "echo").err == ""
        late = folder.quick("submit", "echo", "--wait", "--wait-timeout", "0.01")
        assert late.code == 1 and "no worker is running" in late.err

    def test_a_worker_that_could_run_it_is_no_reason_to_warn(self, folder: Folder) -> None:
        folder.submit("echo")
        join(folder, types=["echo"])
        assert folder.quick("submit", "echo").err == ""


class TestWatch:
    def test_a_completed_task_is_said_at_once(self, folder: Folder) -> None:
        task_id = folder.submit("echo")
        engine = folder.engine()
        run_inline(engine.settle([Settlement(claim(engine), Completed(b"1"))]))
        ended = folder.ok("watch", task_id)
        assert ended.out.count("\n") == 1 and " completed " in ended.out and ended.err == ""
        (shown,) = folder.quick("watch", task_id, "--json").lines
        assert list(shown) == list(TaskBrief.__struct_fields__) and shown["status"] == "completed"

    def test_a_task_that_ended_otherwise_is_exit_code_1(self, folder: Folder) -> None:
        task_id = folder.submit("echo", "--max-retries", "0")
        engine = folder.engine()
        boom = Failure(type="Boom", message="it\nwent \x1b[31mboom")
        run_inline(engine.settle([Settlement(claim(engine), Failed(failure=boom))]))
        ended = folder.quick("watch", task_id)
        assert ended.code == 1 and "dead_letter" in ended.out and "Boom: it went \\x1b[31mboom\n" in ended.out

    def test_no_such_task(self, folder: Folder) -> None:
        folder.submit("echo")
        ended = folder.quick("watch", NOBODY)
        assert ended.code == 1 and NOBODY in ended.error


class Script:
    """What happens to a task between two looks at it, and what its viewer is shown."""

    def __init__(self, *steps: object) -> None:
        self._steps = iter(steps)
        self.seen: list[str] = []

    def see(self, task: Task, why: Explanation | None) -> None:
        told = task.status.progress
        self.seen.append(f"{task.state} {why.causes[0].code if why else told.percent if told else ''}".strip())

    def trouble(self, error: StoreUnavailable | None) -> None:
        self.seen.append("back" if error is None else "lost")

    def pause(self, seconds: float) -> None:
        step = next(self._steps)
        assert callable(step)
        step()


class Flaky:
    """An engine that is out of reach at times."""

    def __init__(self, engine: AdminEngine) -> None:
        self._engine = engine
        self.away = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def get(self, task_id: TaskId) -> Task:
        if self.away:
            raise StoreUnavailable("nobody answers")
        return await self._engine.get(task_id)


@pytest.fixture
def flaky(folder: Folder) -> Flaky:
    return Flaky(folder.engine())


def test_a_task_is_followed_to_its_end_through_an_outage(flaky: Flaky, folder: Folder) -> None:
    task_id = TaskId(folder.submit("echo"))
    engine = folder.engine()
    held: list[Task] = []

    def beat() -> None:
        lease = held[0].status.lease
        assert lease is not None
        run_inline(engine.heartbeat([Beat(held[0].id, lease.token, Progress(percent=40.0, message="on"))]))

    script = Script(
        lambda: held.append(claim(engine)),
        beat,
        lambda: setattr(flaky, "away", True),
        lambda: None,
        lambda: setattr(flaky, "away", False),
        lambda: run_inline(engine.settle([Settlement(held[0], Completed(None))])),
    )
    task = follow(flaky, task_id, script, pause=script.pause)  # type: ignore[arg-type]
    assert task.state is State.COMPLETED
    assert script.seen == [
        "queued no_workers",
        "executing",
        "executing 40.0",
        "lost",
        "back",
        "executing 40.0",
        "completed",
    ]


def test_lines_say_each_change_once(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    task_id = TaskId(folder.submit("echo"))
    engine = folder.engine()
    lines = Lines()
    waiting = run_inline(engine.get(task_id))
    why = run_inline(engine.explain(task_id))
    for _ in range(3):
        lines.see(waiting, why)
    running = claim(engine)
    for _ in range(3):
        lines.see(running, None)
    said = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "queued: no worker is running; start one with `fairlead worker`",
        "executing, attempt 1 at mail-1",
    ]


def test_a_live_bar_shows_the_percent_and_pulses_without_one(folder: Folder) -> None:
    task_id = TaskId(folder.submit("echo"))
    join(folder)
    engine = folder.engine()
    with live(stderr=True) as bar:
        assert isinstance(bar, LiveBar)
        bar.see(run_inline(engine.get(task_id)), run_inline(engine.explain(task_id)))
        assert (bar.bar.total, bar.bar.description.partition(":")[0]) == (None, "queued, number 1 in line")
        running = claim(engine)
        told = replace(running.status, progress=Progress(percent=40.0, message="[red]on\n\x1b[2J"))
        bar.see(Task(running.spec, told), None)
        assert (bar.bar.total, bar.bar.completed) == (100.0, 40.0)
        assert bar.bar.description == "executing, attempt 1 at mail-1: 40 % [red]on \\x1b[2J"
        bar.trouble(StoreUnavailable("nobody answers"))
        assert bar.bar.description == "the store is out of reach, trying again: nobody answers"
        bar.trouble(None)
        assert bar.bar.description.startswith("executing")
