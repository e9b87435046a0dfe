"""What an app does from asynchronous code it does from synchronous code too, with the same signature."""

from __future__ import annotations

import inspect

import pytest

from fairlead import Fairlead, TaskHandle
from fairlead.app import admin, admin_parts
from fairlead.app.flow import Chain
from fairlead.app.task_type import TaskDefinition
from fairlead.app.testing import Rehearsal
from fairlead.core.identity import TaskId
from fairlead.core.instant import Instant
from scripts.app_admin import FILE, INDEX, PARTS, AppPart, ForwardedMethod, Service, index, methods, module, operations

BY_HAND = [Fairlead, TaskHandle, TaskDefinition, Chain, Rehearsal]
GENERATED = [admin_parts.Operated, *(getattr(admin, part.kind) for part in PARTS)]
ASYNCHRONOUS_ONLY = {"worker", "exposed", "close"}
"""What only asynchronous programs use: `run_worker` and the end of the process do the same for others."""


class Lamps:
    """A service."""

    async def dim(self, lamp: TaskId, *, by: float = 0.5, trace: str = "") -> list[Instant]:
        """Dim a lamp.

        It burns on.
        """
        raise NotImplementedError

    async def put_out(self, lamp: TaskId) -> None:
        """Put a lamp out."""

    async def refill(self) -> None:
        """What nobody asks of a server."""

    async def declare(self, lamp: TaskId) -> None:
        """What no person asks."""

    async def _trim(self) -> None: ...


class RemoteLamps:
    """The same behind a server."""

    async def dim(self, lamp: TaskId, *, by: float = 0.5) -> list[Instant]:
        raise NotImplementedError

    async def put_out(self, lamp: TaskId) -> None: ...

    async def declare(self, lamp: TaskId) -> None: ...


@pytest.fixture
def passed_on() -> list[ForwardedMethod]:
    part = AppPart(name="lamps", summary="Lamps.", service=Service(Lamps, RemoteLamps), hidden=["declare"])
    return [*operations(part)]


def test_the_generated_files_are_up_to_date() -> None:
    assert FILE.read_text("utf-8") == module(), "run python scripts/app_admin.py"
    assert INDEX.read_text("utf-8") == index(), "run python scripts/app_admin.py"


def test_what_a_service_has_here_and_behind_a_server_is_passed_on_unless_it_is_hidden(
    passed_on: list[ForwardedMethod],
) -> None:
    dim, put_out = passed_on

    assert dim.twins() == (
        "    async def dim(self, lamp: TaskId, *, by: float = 0.5) -> list[Instant]:\n"
        '        """Dim a lamp.\n'
        "\n"
        "        It burns on.\n"
        '        """\n'
        "        return await (await self._engine()).lamps.dim(lamp, by=by)\n"
        "\n"
        "    def dim_sync(self, lamp: TaskId, *, by: float = 0.5) -> list[Instant]:\n"
        '        """`dim`, from synchronous code."""\n'
        "        return run_inline(self._inline().lamps.dim(lamp, by=by))\n"
    )
    assert "        run_inline(self._inline().lamps.put_out(lamp))\n" in put_out.twins()


def test_what_a_signature_names_is_imported(passed_on: list[ForwardedMethod]) -> None:
    assert {*passed_on[0].imports()} == {
        "from fairlead.core.identity import TaskId",
        "from fairlead.core.instant import Instant",
    }


def test_what_is_hidden_is_there_to_be_hidden() -> None:
    hidden = [(part.service, name) for part in PARTS for name in part.hidden]

    assert [name for service, name in hidden if not all(name in methods(kind) for kind in service or ())] == []


@pytest.mark.parametrize("kind", [*BY_HAND, *GENERATED])
def test_every_method_has_a_twin_with_its_signature(kind: type) -> None:
    asynchronous = {
        name: inspect.signature(member)
        for name, member in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in ASYNCHRONOUS_ONLY
    }
    twins = {name: inspect.signature(getattr(kind, f"{name}_sync")) for name in asynchronous}

    assert asynchronous
    assert twins == asynchronous
