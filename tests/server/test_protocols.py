"""With a uvicorn whose parts are known requests go the short ways; with any other they are answered all the same."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http import flow_control
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fairlead.core.errors import InvalidSettings
from fairlead.server.http import connection, protocols
from fairlead.server.http.connection import Connection
from fairlead.server.http.protocols import Relay
from fairlead.server.server import Server
from tests.server.probes import HOST, JSON, LENGTH, TASK, request, submit
from tests.server.test_server import running
from tests.server.test_wire import UPGRADE, answer_to, calling, statuses
from tests.servers.packages import missing

ROOT: Final = Path(__file__).parents[2]
LOWEST: Final = "0.47.0"


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged about uvicorn."""
    protocols._warn.cache_clear()
    caplog.set_level(logging.WARNING, "fairlead.server")
    yield lambda: [record.getMessage() for record in caplog.records if "uvicorn" in record.getMessage()]
    protocols._warn.cache_clear()


def kind_of(server: Server) -> Any:
    """What a server makes of its connections."""
    make: Any = server._uvicorn.config.http
    return make.func


class Longer(RequestResponseCycle):
    """A cycle that wants to be told more."""

    def __init__(self, *, trailers: bool, **options: Any) -> None:
        super().__init__(**options)


def forget(_: Connection, *arguments: Any) -> None:
    """A step that does not do what it did."""


def a_module_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "uvicorn.protocols.http.flow_control", None)
    patch.delitem(sys.modules, "fairlead.server.http.connection")


def a_name_is_gone(patch: pytest.MonkeyPatch) -> None:
    # The protocol behind has it already.
    patch.delattr(flow_control, "HIGH_WATER_LIMIT")
    patch.delitem(sys.modules, "fairlead.server.http.connection")


def a_method_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(connection._METHODS, HttpToolsProtocol, ("_start_task",))


def an_attribute_is_gone(patch: pytest.MonkeyPatch) -> None:
    made = HttpToolsProtocol.__init__

    def made_without(self: HttpToolsProtocol, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        if isinstance(self, Connection):
            del self.pipeline

    patch.setattr(HttpToolsProtocol, "__init__", made_without)


def an_argument_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(connection, "RequestResponseCycle", Longer)


def a_step_does_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connection, "on_response_complete", forget)


CHANGES: Final = [
    a_module_is_gone, a_name_is_gone, a_method_is_gone, an_attribute_is_gone, an_argument_is_new, a_step_does_nothing,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_whatever_has_changed_requests_are_answered_and_it_is_said_once(
    change: Callable[[pytest.MonkeyPatch], None],
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(monkeypatch)
    async with running() as server, running() as other:
        assert kind_of(server) is kind_of(other) is Relay
        assert statuses(await answer_to(server, request(HOST, JSON, LENGTH, body=TASK) + submit())) == (201, 201)
        assert statuses(await answer_to(server, submit(HOST))) == (400,)
        async with calling(server) as caller:
            await caller.write(request(HOST, *UPGRADE, start=b"GET /ws HTTP/1.1"))
            assert statuses(await caller.until(b"\r\n\r\n")) == (101,)
        async with httpx.AsyncClient(base_url=server.url) as client:
            pages = [await client.get("/api/v1/tasks"), await client.get("/docs"), await client.get("/nothing")]
            assert [page.status_code for page in pages] == [200, 200, 404]
            assert pages[1].headers["x-frame-options"] == "DENY"
    (warning,) = warnings()
    assert f"install 'uvicorn{protocols.SUPPORTED}'" in warning


async def test_the_uvicorn_that_is_installed_is_known(warnings: Callable[[], list[str]]) -> None:
    async with running() as server:
        assert kind_of(server) is Connection
        assert statuses(await answer_to(server, submit())) == (201,)
    assert warnings() == []


async def test_a_request_that_breaks_the_application_breaks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    an_argument_is_new(monkeypatch)
    async with running() as server:
        inner = server._uvicorn.config.app._app  # type: ignore[union-attr]
        failing = iter([True])

        async def fails_once(scope: Any, receive: Any, send: Any) -> None:
            if next(failing, False):
                raise RuntimeError("it broke")
            await inner(scope, receive, send)

        server._uvicorn.config.app._app = fails_once  # type: ignore[union-attr]
        broken = request(HOST, start=b"GET /api/v1/tasks HTTP/1.1")
        assert statuses(await answer_to(server, broken))[0] == 500
        assert statuses(await answer_to(server, submit())) == (201,)


async def test_a_server_without_what_it_needs_of_uvicorn_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(uvicorn.Server, "capture_signals")
    monkeypatch.delattr("fairlead.server.server._Uvicorn.capture_signals")
    with pytest.raises(InvalidSettings, match=r"its server has no capture_signals; install 'uvicorn>="):
        async with running():
            pass


def test_the_range_that_is_said_is_the_one_of_the_extra_and_has_the_locked_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert f"uvicorn{protocols.SUPPORTED}" in extras["server"]
    lowest, below = re.findall(r"0\.(\d+)", protocols.SUPPORTED)
    assert int(lowest) <= int(version("uvicorn").split(".")[1]) < int(below)
    assert LOWEST.startswith(f"0.{lowest}.")


@pytest.mark.slow
def test_the_lowest_version_of_the_range_is_known(tmp_path: Path) -> None:
    installing = [str(ROOT / "scripts" / "uv"), "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*installing, f"uvicorn=={LOWEST}"], capture_output=True, text=True, check=False)
    if installed.returncode:
        missing(f"uvicorn {LOWEST} could not be installed: {installed.stderr}")
    tests = ["tests/server/test_protocols.py::test_the_uvicorn_that_is_installed_is_known", "tests/server/test_wire.py"]
    tried = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", "known or short"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stdout
