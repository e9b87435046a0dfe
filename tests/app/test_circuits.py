"""Circuits as an app declares and turns them."""

from __future__ import annotations

from pathlib import Path

from fairlead import CircuitSettings, Fairlead
from fairlead.core.circuit import CircuitState

SETTINGS = CircuitSettings(failure_ratio=0.2, probes=1)


async def test_what_a_task_type_declares_is_stored_when_a_worker_starts() -> None:
    app = Fairlead("memory://")

    @app.task(circuit=SETTINGS)
    async def fetch() -> None: ...

    assert await app.circuits.all() == {}
    worker = await app.worker(keeper_process=False)
    circuit = await app.circuits.get("fetch")
    assert (circuit.settings, circuit.declared) == (SETTINGS, True)
    await worker.close()
    await app.close()


def test_circuits_are_turned_from_synchronous_code(tmp_path: Path) -> None:
    app = Fairlead(f"sqlite:///{tmp_path}/tasks.db")
    circuits = app.circuits
    assert circuits.set_sync("fetch", SETTINGS).settings == SETTINGS
    assert circuits.open_sync("fetch").state is CircuitState.OPEN
    assert circuits.close_sync("fetch") == circuits.get_sync("fetch") == circuits.all_sync()["fetch"]
    circuits.remove_sync("fetch")
    assert circuits.all_sync() == {}
