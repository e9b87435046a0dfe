"""What an app's owner does with its circuits, from asynchronous and from synchronous code."""

from __future__ import annotations

from collections.abc import Callable

from fairlead.core.circuit import Circuit, CircuitSettings
from fairlead.engine.facade import CircuitFacade
from fairlead.engine.inline import run_inline
from fairlead.sdk.connection import Link


class AppCircuits:
    """The circuits of an app's task types. A change counts everywhere within about a second."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self.declared: dict[str, CircuitSettings] = {}
        """Those that `app.task` declares, by task type."""

    async def all(self) -> dict[str, Circuit]:
        """Every circuit of the store, by its task type."""
        return await (await self._circuits()).all()

    async def get(self, task_type: str) -> Circuit:
        """The circuit of a task type; raises CircuitNotFound if it has none."""
        return await (await self._circuits()).get(task_type)

    async def set(self, task_type: str, settings: CircuitSettings) -> Circuit:
        """Give a task type a circuit, or its circuit other settings; how it stands is left as it is."""
        return await (await self._circuits()).set(task_type, settings)

    async def remove(self, task_type: str) -> Circuit:
        """Take a task type's circuit away; how it stood."""
        return await (await self._circuits()).remove(task_type)

    async def open(self, task_type: str) -> Circuit:
        """Open a circuit by hand: its tasks wait, and some are tried after the usual time."""
        return await (await self._circuits()).open(task_type)

    async def close(self, task_type: str) -> Circuit:
        """Close a circuit by hand: its tasks are claimed again, and what was counted is forgotten."""
        return await (await self._circuits()).close(task_type)

    def all_sync(self) -> dict[str, Circuit]:
        """`all`, from synchronous code."""
        return run_inline(self._inline.all())

    def get_sync(self, task_type: str) -> Circuit:
        """`get`, from synchronous code."""
        return run_inline(self._inline.get(task_type))

    def set_sync(self, task_type: str, settings: CircuitSettings) -> Circuit:
        """`set`, from synchronous code."""
        return run_inline(self._inline.set(task_type, settings))

    def remove_sync(self, task_type: str) -> Circuit:
        """`remove`, from synchronous code."""
        return run_inline(self._inline.remove(task_type))

    def open_sync(self, task_type: str) -> Circuit:
        """`open`, from synchronous code."""
        return run_inline(self._inline.open(task_type))

    def close_sync(self, task_type: str) -> Circuit:
        """`close`, from synchronous code."""
        return run_inline(self._inline.close(task_type))

    async def _circuits(self) -> CircuitFacade:
        return (await self._connect().engine()).circuits

    @property
    def _inline(self) -> CircuitFacade:
        return self._connect().inline().circuits
