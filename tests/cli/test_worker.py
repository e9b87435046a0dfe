"""`fairlead worker`: finding the app, working, draining, several processes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter

import httpx
import pytest

from fairlead import Fairlead, Settings
from fairlead.app.config_keys import KEYS
from fairlead.cli.commands.worker import metrics_port_of
from fairlead.core.errors import InvalidSettings
from fairlead.core.task import Reason, State
from tests.cli.running import Folder, until
from tests.engine.counting import Read

APP = """
import asyncio
from pathlib import Path
from fairlead import Fairlead

app = Fairlead("sqlite:///tasks.db")
other = 3

@app.task
async def double(number: int) -> int:
    return 2 * number

@app.task
async def wait_for(file: str) -> str:
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return file
"""


@pytest.fixture
def folder(folder: Folder) -> Folder:
    folder.write("tasks.py", APP)
    return folder


def test_an_app_that_cannot_be_found_is_misuse(folder: Folder) -> None:
    for arguments, complaint in (
        (("tasks:ap",), "the module 'tasks' has no 'ap'; did you mean tasks:app?"),
        (("empty:app", "--log-level", "warning"), "the app has no task types"),
    ):
        folder.write("empty.py", "from fairlead import Fairlead\napp = Fairlead()\n")
        ended = folder.run("worker", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert complaint in ended.error


def test_it_runs_tasks_and_sigterm_lets_them_end(folder: Folder) -> None:
    store = ("--store", "sqlite:///tasks.db")
    with folder.start("worker", "tasks:app", "--log-format", "text") as worker:
        assert folder.ok("submit", "double", "number=21", "--wait", *store).out == "42\n"
        wrong = folder.quick("submit", "double", "number=x", "--wait", *store)
        assert wrong.code == 1 and "ended as failed (rejected): InvalidArguments" in wrong.error
        late = folder.quick("submit", "nobody", "--wait", "--wait-timeout", "0.01", *store)
        assert late.code == 1 and "has not ended after 0.01 s; it is still waiting or running" in late.err
        assert "no worker of queue default has a handler for the type nobody" in late.err
        task_id = folder.submit("wait_for", "file=go", *store)
        until(lambda: folder.quick("show", task_id, "--json", *store).json["status"] == "executing")
        worker.send(signal.SIGTERM)
        worker.find("draining: 1 tasks still running")
        folder.write("go", "")
        assert worker.wait() == 0
    shown = folder.quick("show", task_id, "--json", *store).json
    assert (shown["status"], shown["result"], shown["attempts"]) == ("completed", "go", 1)
    at_once = KEYS["concurrency"].default
    (line,) = worker.find(f"working on sqlite:///tasks.db: queues default; types double, wait_for; {at_once} at once")
    assert re.fullmatch(r"\S+Z info    \[\d+\] working on .*", line)
    (started, completed, *_) = worker.find(" double ")
    identity = r"[0-9a-f]{32} double"
    assert re.fullmatch(rf"\S+Z info    \[\d+\] task {identity} started, attempt 1 by \S+, medium", started)
    assert re.fullmatch(rf"\S+Z info    .* task {identity} completed after \S+ s, attempt 1 by \S+, medium", completed)
    (failed,) = worker.find("double failed after")
    assert re.fullmatch(r"\S+Z error   .*, medium \(rejected\): InvalidArguments: .*", failed)


def test_it_is_paused_and_resumed_from_another_process(folder: Folder) -> None:
    store = ("--store", "sqlite:///tasks.db")
    with folder.start("worker", "tasks:app", "--log-format", "text") as worker:
        running = folder.submit("wait_for", "file=go", *store)
        until(lambda: folder.quick("show", running, "--json", *store).json["status"] == "executing")
        until(lambda: bool(folder.quick("workers", "list", "--json", *store).lines))
        (shown,) = folder.quick("workers", "list", "--json", *store).lines
        name = shown["worker_id"]
        assert folder.ok("workers", "pause", name, *store).out.startswith(f"{name} is paused")
        worker.find("paused: claiming no more until resumed")
        waiting = folder.submit("double", "number=21", *store)
        folder.write("go", "")
        until(lambda: folder.quick("show", running, "--json", *store).json["status"] == "completed")
        assert folder.quick("show", waiting, "--json", *store).json["status"] == "queued"
        assert "paused" in folder.quick("explain", waiting, *store).out
        folder.ok("workers", "resume", name, *store)
        until(lambda: folder.quick("show", waiting, "--json", *store).json["status"] == "completed")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_second_signal_hands_back_what_runs(folder: Folder) -> None:
    task_id = folder.submit("wait_for", "file=never", "--store", "sqlite:///mine.db")
    flags = ("--store", "sqlite:///mine.db", "--no-keeper", "--log-level", "debug", "--json")
    with folder.start("worker", "tasks:app", *flags) as worker:
        worker.find("using the store sqlite:///mine.db from --store; the app itself names sqlite:///tasks.db")
        (line,) = worker.find('"message":"task started"')
        assert json.loads(line)["task_id"] == task_id
        worker.send(signal.SIGINT)
        worker.find("draining: 1 tasks still running")
        worker.send(signal.SIGINT)
        assert worker.wait() == 0
    (task,) = folder.tasks("mine.db")
    assert (task.state, task.status.reason, task.status.retries) == (State.QUEUED, Reason.HANDED_BACK, 0)
    assert [line for line in worker.lines if not line.startswith('{"time":"')] == []


def test_a_killed_process_of_several_is_replaced(folder: Folder) -> None:
    store = ("--store", "sqlite:///tasks.db")
    with folder.start("worker", "tasks:app", "--processes", "2") as supervisor:
        supervisor.find("working on", 2)
        first, _ = supervisor.find("is pid", 2)
        victim = int(json.loads(first)["message"].rpartition(" ")[2])
        os.kill(victim, signal.SIGKILL)
        supervisor.find(f"worker process 1 of 2 (pid {victim}) was killed by SIGKILL; another starts in 0.5 s")
        supervisor.find("working on", 3)
        assert folder.submit("double", "number=4", "--wait", *store) == "8"
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_processes_leave_when_their_supervisor_is_killed(folder: Folder) -> None:
    with folder.start("worker", "tasks:app", "--processes", "2") as supervisor:
        supervisor.find("working on", 2)
        supervisor.send(signal.SIGKILL)
        supervisor.silent()


def test_what_one_process_cannot_do_none_is_started_again_for(folder: Folder) -> None:
    with folder.start("worker", "tasks:nope", "--processes", "2") as supervisor:
        assert supervisor.wait() == 2
    supervisor.find("the module 'tasks' has no 'nope'")


def test_the_built_in_handlers_need_no_app(folder: Folder) -> None:
    with folder.start("worker", "builtin", "--queues", "a,b", "--concurrency", "3", "--lease-seconds", "40") as worker:
        worker.find("queues a, b; types echo, email, fail, sleep, webhook; 3 async, 3 thread at once")
        answer = folder.quick("submit", "echo", "message=hi", "--queue", "b", "--wait", "--json").json
        assert (answer["result"], answer["status"]) == ("hi", "completed")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_queues_share_a_worker_by_their_weights(folder: Folder) -> None:
    folder.write("shared.py", _SAYS)
    lines = [{"task_type": "say", "queue": name, "parameters": {"word": name}} for name in ["bulk"] * 12 + ["web"] * 12]
    folder.write("lines", "\n".join(map(json.dumps, lines)))
    folder.quick("submit", "--from-file", "lines")
    flags = ("--queues", "web=3,bulk=1", "--share", "all", "--concurrency", "1", "--until-empty")
    with folder.start("worker", "shared:app", *flags) as worker:
        assert worker.wait() == 0
    assert Counter((folder.path / "said").read_text().split()[:16]) == {"web": 12, "bulk": 4}


_SAYS = """
from fairlead import Fairlead

app = Fairlead()


@app.task
def say(word: str) -> None:
    with open("said", "a") as said:
        print(word, file=said)
"""


def test_flags_reach_an_app_that_leaves_them_to_the_configuration_and_its_child_processes(folder: Folder) -> None:
    folder.write(
        "plain.py",
        "from fairlead import Fairlead\n"
        "app = Fairlead()\n"
        "@app.task\n"
        "def here() -> list[object]:\n"
        "    return [app.store, app.settings.lease]\n"
        "@app.task(isolate=True)\n"
        "def elsewhere() -> list[object]:\n"
        "    return [app.store, app.settings.lease]\n",
    )
    flags = ("--store", "sqlite:///mine.db", "--lease-seconds", "44", "--drain-seconds", "1")
    with folder.start("worker", "plain:app", *flags) as worker:
        for task_type in ("here", "elsewhere"):
            answer = folder.quick("submit", task_type, "--wait", "--json", "--store", "sqlite:///mine.db")
            assert answer.json["result"] == ["sqlite:///mine.db", 44_000_000]
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_each_process_shows_its_metrics_on_a_port_of_its_own(folder: Folder) -> None:
    store = ("--store", "sqlite:///tasks.db")
    with folder.start("worker", "tasks:app", "--processes", "2", "--metrics-port", "0") as supervisor:
        urls = [
            re.search(r"http://127\.0\.0\.1:\d+/metrics", line) for line in supervisor.find("serving metrics at", 2)
        ]
        for _ in range(3):
            assert folder.submit("double", "number=4", "--wait", *store) == "8"
        pages = [Read(httpx.get(url[0]).text) for url in urls if url]
        supervisor.send(signal.SIGTERM)
        assert supervisor.wait() == 0
    done = [page.value("fairlead_tasks_completed_total", type="double", status="completed") or 0 for page in pages]
    assert len(pages) == 2 and sum(done) == 3
    for page in pages:
        assert page.value("fairlead_worker_capacity_used_ratio") == 0
        assert page.value("fairlead_worker_heartbeat_failures_total") == 0
        assert "fairlead_queue_depth" not in page.names, "how the store stands is for servers to say"


def test_the_processes_count_their_ports_upwards() -> None:
    assert [metrics_port_of(9100, number) for number in (1, 2, 3)] == [9100, 9101, 9102]
    assert metrics_port_of(0, 3) == 0
    with pytest.raises(InvalidSettings, match="metrics_port 65535 leaves no port for process 2"):
        metrics_port_of(65_535, 2)


def test_an_app_that_counts_nothing_has_no_metrics_to_show() -> None:
    app = Fairlead("memory://", settings=Settings())

    @app.task
    def nothing() -> None: ...

    with pytest.raises(InvalidSettings, match=r"observers=\[fairlead\.Metrics\(\)\]"):
        app.run_worker(metrics_port=0)


def test_what_handlers_log_carries_their_task_also_from_processes_of_their_own(folder: Folder) -> None:
    folder.write(
        "talking.py",
        "import logging\n"
        "from fairlead import Fairlead\n"
        "app = Fairlead('sqlite:///tasks.db')\n"
        "@app.task\n"
        "def here() -> None:\n"
        "    logging.getLogger('mine').warning('hello')\n"
        "@app.task(isolate=True)\n"
        "def elsewhere() -> None:\n"
        "    logging.getLogger('mine').warning('hello')\n",
    )
    store = ("--store", "sqlite:///tasks.db")
    with folder.start("worker", "talking:app") as worker:
        ids = {
            name: folder.quick("submit", name, "--wait", "--json", *store).json["task_id"]
            for name in ("here", "elsewhere")
        }
        said = {line["task_type"]: line for line in map(json.loads, worker.find('"message":"hello"', 2))}
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    for task_type, task_id in ids.items():
        line = said[task_type]
        assert (line["task_id"], line["attempt"], line["level"], line["logger"]) == (task_id, 1, "warning", "mine")
    assert said["here"]["process"] != said["elsewhere"]["process"]


def test_a_worker_is_recycled_and_leaves_when_nothing_is_left(folder: Folder) -> None:
    folder.write(
        "counting.py",
        "import atexit\nimport sys\n"
        'atexit.register(lambda: print("the exit is told", file=sys.stderr))\n'
        'from fairlead import Fairlead\napp = Fairlead("sqlite:///tasks.db")\nran = 0\n\n'
        "@app.task\nasync def count() -> int:\n    global ran\n    ran += 1\n    return ran\n",
    )
    store = ("--store", "sqlite:///tasks.db")
    for _ in range(5):
        folder.ok("submit", "count", *store)

    ended = folder.run("worker", "counting:app", "--max-tasks", "2", "--until-empty")

    assert ended.code == 0, ended.err
    assert ended.err.count("beginning again in a fresh process") == 2
    assert ended.err.count("the exit is told") == 3, "such as Sentry's, which sends what it still has then"
    tasks = [json.loads(line) for line in folder.ok("list", "--json", *store).out.splitlines()]
    shown = [json.loads(folder.ok("show", task["task_id"], "--json", *store).out) for task in tasks]
    assert sorted(each["result"] for each in shown) == [1, 1, 1, 2, 2], "each process counts from one"
    wrong = folder.run("worker", "counting:app", "--until-empty", "--processes", "2")
    assert (wrong.code, "--until-empty is for one process, not 2" in wrong.error) == (2, True)
