"""Circuits of an app on a server: as on the store itself."""

from __future__ import annotations

import pytest

from fairlead.core.circuit import Circuit, CircuitSettings, CircuitState
from fairlead.core.errors import CircuitNotFound
from tests.client.serving import Port

SETTINGS = CircuitSettings(failure_ratio=0.25, min_outcomes=7, probes=2)


async def test_circuits_are_set_turned_and_removed_over_a_server(port: Port) -> None:
    app = port.app()
    circuits = app.circuits
    with pytest.raises(CircuitNotFound):
        await circuits.open("flaky")
    assert await circuits.set("flaky", SETTINGS) == Circuit(settings=SETTINGS)
    opened = await circuits.open("flaky")
    assert opened == await port.engine.circuits.get("flaky") == await circuits.get("flaky")
    assert opened.state is CircuitState.OPEN
    assert await circuits.all() == {"flaky": opened}
    stats = await (await app.connection().engine()).stats()
    assert stats.circuits == {"flaky": opened}
    assert (await circuits.close("flaky")).state is CircuitState.CLOSED
    await circuits.remove("flaky")
    engine = await app.connection().engine()
    assert await engine.circuits.find("flaky") is None
    await app.close()


async def test_a_worker_on_a_server_declares_its_circuits(port: Port) -> None:
    app = port.app()

    @app.task(circuit=SETTINGS)
    async def flaky() -> int:
        return 1

    async with port.hired(app):
        assert await (await flaky.submit()).result(30) == 1
    assert (await port.engine.circuits.get("flaky")).settings == SETTINGS
