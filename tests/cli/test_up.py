"""`fairlead up`: everything in one process, and Ctrl-C loses nothing."""

from __future__ import annotations

import json
import signal
import socket
import sys
import urllib.request

from fairlead.core.task import Reason, State
from tests.cli.running import Folder, Program, until


def states(folder: Folder) -> list[State]:
    return [task.state for task in folder.tasks()]


def test_it_says_what_to_try_and_that_works(folder: Folder) -> None:
    with folder.start("up", "--port", "0", "--log-format", "text") as up:
        up.find("is up on sqlite:///fairlead.db")
        (hint,) = up.find("submit echo message=hello --wait")
        assert folder.ok("submit", *hint.partition(" submit ")[2].split()).out == '"hello"\n'
        failed = folder.quick("submit", "fail", "message=oops", "--max-retries", "0", "--wait", "--json")
        assert failed.code == 1 and failed.json["status"] == "dead_letter"
        up.find("echo completed after")
        up.find("fail dead letter after")
        up.send(signal.SIGTERM)
        assert up.wait(tracebacks=1) == 0


def test_ctrl_c_lets_tasks_end_and_a_second_one_hands_them_back(folder: Folder) -> None:
    lines = ['{"type": "sleep", "parameters": {"seconds": 0.3}}'] * 3
    lines += ['{"type": "sleep", "parameters": {"seconds": 600}}'] * 3
    lines += ['{"type": "sleep", "parameters": {"seconds": 600}, "priority": "low"}'] * 4
    folder.submit("--from-file", str(folder.write("tasks.jsonl", "\n".join(lines))))
    with folder.start("up", "--port", "0", "--concurrency", "6") as up:
        until(lambda: states(folder).count(State.EXECUTING) >= 3)
        up.send(signal.SIGINT)
        up.find("draining:")
        until(lambda: states(folder).count(State.COMPLETED) == 3)
        up.send(signal.SIGINT)
        assert up.wait() == 0
    tasks = folder.tasks()
    assert [task.state for task in tasks] == [State.COMPLETED] * 3 + [State.QUEUED] * 7
    assert [task.status.retries for task in tasks] == [0] * 10
    assert Reason.HANDED_BACK in {task.status.reason for task in tasks}


def test_it_tells_scripts_when_it_is_up(folder: Folder) -> None:
    with folder.start("up", "--port", "0", "--store", "sqlite:///mine.db", "--json") as up:
        (line,) = up.find('"store"')
        assert json.loads(line)["store"] == "sqlite:///mine.db"
        up.send(signal.SIGINT)
        assert up.wait() == 0


def test_the_http_api_is_up_too(folder: Folder) -> None:
    with folder.start("up", "--port", "0", "--json") as up:
        (line,) = up.find('"url"')
        url = json.loads(line)["url"]
        task = json.dumps({"task_type": "echo", "parameters": {"message": "hello"}}).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/api/v1/tasks", task, headers), timeout=30) as answer:
            assert answer.status == 201
        until(lambda: states(folder) == [State.COMPLETED])
        up.send(signal.SIGTERM)
        assert up.wait() == 0


def test_a_port_that_is_taken_is_an_error_with_a_remedy(folder: Folder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = folder.run("up", "--port", str(port))
    assert ended.code == 2
    error = ended.err.splitlines()[-1]
    assert error.startswith(f"fairlead: port {port} on 127.0.0.1 is in use") and "--port" in error


def test_without_the_extra_the_worker_runs_alone_and_says_so(folder: Folder) -> None:
    bare = "from fairlead.core.extras import EXTRAS; EXTRAS['server'] = ('no_such_package',); "
    command = [sys.executable, "-c", f"{bare}from fairlead.cli import main; main()", "up"]
    with Program(command, folder.path, folder.environment) as up:
        up.find("The HTTP API is not installed; install it with `pip install 'fairlead[server]'`")
        assert folder.ok("submit", "echo", "message=hello", "--wait").out == '"hello"\n'
        up.send(signal.SIGTERM)
        assert up.wait() == 0


def test_ctrl_c_while_waiting_for_a_result_is_an_interruption(folder: Folder) -> None:
    with folder.start("submit", "echo", "--wait") as waiting:
        until(lambda: (folder.path / "fairlead.db").exists() and folder.tasks())
        waiting.send(signal.SIGINT)
        assert waiting.wait() == 130
    # Before it, it may have said that no worker is running.
    assert waiting.lines[-1] == "fairlead: interrupted"
