"""The SQLite file is deleted or replaced under a server and a worker: nothing more is acknowledged, and all say so."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import Yard, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("old.db"))
    path.write_bytes(b"")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def yard(path: Path) -> Iterator[Yard]:
    with Yard(path.parent, f"sqlite:///{path}").manned() as yard:
        yield yard


@pytest.fixture
def server(yard: Yard) -> Iterator[ServerProcess]:
    server = ServerProcess(yard.folder, yard.store)
    yield server
    server.end()


def ask(server: ServerProcess, path: str, body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize(("lose", "said"), [(delete, "was deleted"), (replace, "was replaced by another file")])
def test_nothing_is_acknowledged_into_the_void(
    yard: Yard, server: ServerProcess, path: Path, lose: Callable[[Path], None], said: str
) -> None:
    task = {"task_type": "work", "queue": "elsewhere"}
    assert ask(server, "/api/v1/tasks", task)[0] == 201
    worker = yard.hire()
    run = json.loads(ask(server, "/api/v1/tasks", {"task_type": "work", "parameters": {"number": 1}})[1])["task_id"]
    eventually(lambda: '"completed"' in ask(server, f"/api/v1/tasks/{run}")[1], "a worker that works")
    lose(path)

    status, answer = ask(server, "/api/v1/tasks", task)
    assert (status, said in answer, "put the file back" in answer) == (503, True, True), answer
    status, answer = ask(server, "/readyz")
    assert (status, said in answer) == (503, True), answer
    status, answer = ask(server, "/api/v1/doctor")
    assert (status, json.loads(answer)["level"], said in answer) == (200, "red", True), answer
    # By now a process that was about to open it may have made a new one.
    eventually(lambda: "while it was open" in server.log_file.read_text(), "a word of the server")
    eventually(lambda: "cannot claim tasks" in worker.log and "while it was open" in worker.log, "a word of the worker")
    assert server.log_file.read_text().count("cannot sweep the store") == 1
    # Said, not chanted.
    assert worker.log.count("cannot claim tasks") == 1
    assert "Traceback" not in worker.log + server.log_file.read_text()


def test_a_file_that_is_put_back_goes_on(yard: Yard, server: ServerProcess, path: Path) -> None:
    task = {"task_type": "work", "queue": "elsewhere"}
    assert ask(server, "/api/v1/tasks", task)[0] == 201
    aside = path.rename(path.with_name("aside.db"))
    assert ask(server, "/api/v1/tasks", task)[0] == 503
    aside.rename(path)
    assert ask(server, "/api/v1/tasks", task)[0] == 201
    assert ask(server, "/readyz")[0] == 200
