"""Circuit breakers: a task type that keeps failing is not claimed for a while. A change applies within a second."""

from __future__ import annotations

from typing import Any

from fairlead.admin.circuits import api
from fairlead.admin.circuits.api import (
    CircuitList,
    CircuitRequest,
    circuit_shown,
    circuits_shown,
    settings_of,
)
from fairlead.core.circuit import Circuit
from fairlead.server.endpoint import Answer, Call, called, named, serve
from fairlead.wire.endpoint import Empty


async def list_circuits(call: Call[Empty, None]) -> Answer:
    """List the circuit breakers and their states."""
    engine = call.state.engine
    return Answer(CircuitList(circuits=circuits_shown(await engine.circuits.all(), engine.clock.now())))


async def put(call: Call[Empty, CircuitRequest]) -> Answer:
    """Set the circuit breaker of a task type, or change its settings; its state stays as it is."""
    circuits, name = call.state.engine.circuits, named(call, "task_type")
    settings = settings_of(call.body)
    if call.body.declared:
        await circuits.declare({name: settings})
        return _answer(call, name, await circuits.get(name))
    return _answer(call, name, await circuits.set(name, settings))


def _answer(call: Call[Any, Any], name: str, circuit: Circuit) -> Answer:
    return Answer(circuit_shown(name, circuit, call.state.engine.clock.now()))


ENDPOINTS = (
    *called(api),
    serve(api.LIST_CIRCUITS, list_circuits),
    serve(api.PUT, put),
)
