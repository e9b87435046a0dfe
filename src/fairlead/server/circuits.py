"""Circuits: task types that stop being claimed while they keep failing. A change counts within a second."""

from __future__ import annotations

from typing import Any

from fairlead.core.circuit import Circuit
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.principal import Role
from fairlead.server.queues import changed_task_type, named
from fairlead.wire.circuits import CircuitList, CircuitRequest, CircuitShown, circuit_shown, circuits_shown, settings_of


async def list_circuits(call: Call[Empty, None]) -> Answer:
    """List the circuits, and how they stand."""
    engine = call.hub.engine
    return Answer(CircuitList(circuits=circuits_shown(await engine.circuits.all(), engine.clock.now())))


async def show(call: Call[Empty, None]) -> Answer:
    """Show the circuit of a task type."""
    name = named(call, "task_type")
    return _answer(call, name, await call.hub.engine.circuits.get(name))


async def put(call: Call[Empty, CircuitRequest]) -> Answer:
    """Give a task type a circuit, or its circuit other settings. How it stands is left as it is."""
    name, circuits = changed_task_type(call), call.hub.engine.circuits
    settings = settings_of(call.body)
    if call.body.declared:
        await circuits.declare({name: settings})
        return _answer(call, name, await circuits.get(name))
    return _answer(call, name, await circuits.set(name, settings))


async def remove(call: Call[Empty, None]) -> Answer:
    """Take a task type's circuit away, so that its tasks are claimed whatever becomes of them; shown as it was."""
    name = changed_task_type(call)
    return _answer(call, name, await call.hub.engine.circuits.remove(name))


async def open_circuit(call: Call[Empty, None]) -> Answer:
    """Open a circuit by hand: the type's tasks wait, and some are tried after the usual time. What runs goes on."""
    name = changed_task_type(call)
    return _answer(call, name, await call.hub.engine.circuits.open(name))


async def close_circuit(call: Call[Empty, None]) -> Answer:
    """Close a circuit by hand: the type's tasks are claimed again, and what was counted is forgotten."""
    name = changed_task_type(call)
    return _answer(call, name, await call.hub.engine.circuits.close(name))


def _answer(call: Call[Any, Any], name: str, circuit: Circuit) -> Answer:
    return Answer(circuit_shown(name, circuit, call.hub.engine.clock.now()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/circuits",
        handler=list_circuits,
        summary="List the circuits",
        role=Role.READ,
        answers={200: CircuitList},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/task-types/{task_type}/circuit",
        handler=show,
        summary="Show a circuit",
        role=Role.READ,
        answers={200: CircuitShown},
        problems=(404,),
    ),
    Endpoint(
        method="PUT",
        path="/api/v1/task-types/{task_type}/circuit",
        handler=put,
        summary="Set a circuit",
        role=Role.ADMIN,
        body=CircuitRequest,
        answers={200: CircuitShown},
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/task-types/{task_type}/circuit",
        handler=remove,
        summary="Remove a circuit",
        role=Role.ADMIN,
        answers={200: CircuitShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/task-types/{task_type}/circuit/open",
        handler=open_circuit,
        summary="Open a circuit",
        role=Role.ADMIN,
        answers={200: CircuitShown},
        problems=(404,),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/task-types/{task_type}/circuit/close",
        handler=close_circuit,
        summary="Close a circuit",
        role=Role.ADMIN,
        answers={200: CircuitShown},
        problems=(404,),
    ),
)
