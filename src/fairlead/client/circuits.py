"""Circuits behind a server: what `engine.circuits` does, over the API."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.client.queues import Asking, type_path
from fairlead.core.circuit import Circuit, CircuitSettings
from fairlead.core.errors import CircuitNotFound
from fairlead.wire.circuits import CircuitList, CircuitShown, circuit_of, request_of


class RemoteCircuits(Asking):
    """The circuits behind a server."""

    async def all(self) -> dict[str, Circuit]:
        """Every circuit, by its task type."""
        listed = await self.ask("GET", "/api/v1/circuits", CircuitList)
        return {shown.task_type: circuit_of(shown) for shown in listed.circuits}

    async def find(self, task_type: str) -> Circuit | None:
        """The circuit of a task type, if it has one."""
        try:
            return await self.get(task_type)
        except CircuitNotFound:
            return None

    async def get(self, task_type: str) -> Circuit:
        """The circuit of a task type; raises CircuitNotFound if it has none."""
        return await self._circuit("GET", task_type)

    async def set(self, task_type: str, settings: CircuitSettings) -> Circuit:
        """Give a task type a circuit, or its circuit other settings; how it stands is left as it is."""
        return await self._circuit("PUT", task_type, body=request_of(settings))

    async def declare(self, circuits: Mapping[str, CircuitSettings]) -> None:
        """Set the circuits that a program declares, but for those that a person has set."""
        for task_type, settings in circuits.items():
            await self._circuit("PUT", task_type, body=request_of(settings, declared=True))

    async def remove(self, task_type: str) -> Circuit:
        """Take a task type's circuit away; how it stood."""
        return await self._circuit("DELETE", task_type)

    async def open(self, task_type: str) -> Circuit:
        """Open a circuit by hand: its tasks wait, and some are tried after the usual time."""
        return await self._circuit("POST", task_type, "/open")

    async def close(self, task_type: str) -> Circuit:
        """Close a circuit by hand: its tasks are claimed again, and what was counted is forgotten."""
        return await self._circuit("POST", task_type, "/close")

    async def _circuit(self, method: str, task_type: str, step: str = "", body: object = None) -> Circuit:
        path = f"{type_path(task_type)}/circuit{step}"
        return circuit_of(await self.ask(method, path, CircuitShown, body, task_type))
