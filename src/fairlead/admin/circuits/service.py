"""Circuits as people set them, look at them and turn them by hand. Engines obey them in `circuit_breaker`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fairlead.core.circuit import Circuit, CircuitSettings, check_circuit, closed, configured, opened
from fairlead.core.errors import CircuitNotFound, StoreUnavailable
from fairlead.core.identity import check_name
from fairlead.engine.changes import TaskChanges
from fairlead.engine.circuit_breaker import BELL, FORM, KIND
from fairlead.engine.records import Unread

_TRIES: Final = 100


class Circuits:
    """The circuits of one store, by task type."""

    def __init__(self, task_changes: TaskChanges) -> None:
        self._task_changes = task_changes
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock

    async def all(self) -> dict[str, Circuit]:
        """Every circuit, by its task type."""
        return {each.name: each.value for each in (await self._records.read(FORM)).kept}

    async def find(self, task_type: str) -> Circuit | None:
        """The circuit of a task type, if it has one: whether it is open, and until when, is in its status."""
        return await self._task_changes.breakers.find(task_type)

    async def get(self, task_type: str) -> Circuit:
        """The circuit of a task type; raises CircuitNotFound if it has none."""
        circuit = await self.find(check_name("task_type", task_type))
        if circuit is None:
            raise CircuitNotFound(task_type)
        return circuit

    async def set(self, task_type: str, settings: CircuitSettings) -> Circuit:
        """Set the circuit breaker of a task type, or change its settings; its state stays as it is."""
        check_circuit("settings", settings)
        return await self._change(task_type, lambda circuit: configured(circuit, settings, declared=False))

    async def declare(self, circuits: Mapping[str, CircuitSettings]) -> None:
        """Set the circuits that a program declares, but for those that a person has set."""
        for task_type, settings in circuits.items():
            if isinstance(await self._records.find(FORM, task_type), Unread):
                # Someone with a newer version has set it; a worker must not end for that.
                continue
            await self._change(
                task_type,
                lambda circuit, settings=settings: (  # type: ignore[misc]
                    configured(circuit, settings, declared=True) if circuit is None or circuit.declared else circuit
                ),
            )

    async def remove(self, task_type: str) -> Circuit:
        """Remove the circuit breaker of a task type, so that its tasks are claimed however many fail."""
        circuit = await self.get(task_type)
        if not await self._store.drop(KIND, task_type):
            raise CircuitNotFound(task_type)
        await self._ring()
        return circuit

    async def open(self, task_type: str) -> Circuit:
        """Open a circuit by hand: its tasks wait, and some are tried after the usual time."""
        return await self._turn(task_type, lambda circuit: opened(circuit, self._clock.now()))

    async def close(self, task_type: str) -> Circuit:
        """Close a circuit by hand: its tasks are claimed again, and its counts start at zero."""
        return await self._turn(task_type, lambda circuit: closed(circuit, self._clock.now()))

    async def _turn(self, task_type: str, turn: Callable[[Circuit], Circuit]) -> Circuit:
        def step(circuit: Circuit | None) -> Circuit:
            if circuit is None:
                raise CircuitNotFound(task_type)
            return turn(circuit)

        return await self._change(task_type, step)

    async def _change(self, task_type: str, change: Callable[[Circuit | None], Circuit]) -> Circuit:
        check_name("task_type", task_type)
        for _ in range(_TRIES):
            kept = await self._records.get(FORM, task_type)
            before = None if kept is None else kept.value
            after = change(before)
            if after == before:
                return after
            expected = 0 if kept is None else kept.version
            if await self._store.put(KIND, task_type, FORM.write(after), expected=expected) is not None:
                await self._ring()
                if before is not None and after.state is not before.state:
                    self._task_changes.breakers.tell(task_type, after)
                    await self._task_changes.finish()
                return after
        raise StoreUnavailable(f"the circuit of {task_type!r} changed {_TRIES} times meanwhile; try again later")

    async def _ring(self) -> None:
        await self._store.put(BELL, BELL, b"")
        self._task_changes.queue_cache.expire()
