"""Circuits over HTTP: their shapes, their endpoints, and the calls of a client."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from fairlead.core.circuit import Circuit, CircuitSettings, CircuitState, CircuitStatus, check_circuit
from fairlead.core.errors import CircuitNotFound, RecordUnreadable
from fairlead.core.identity import check_name
from fairlead.core.instant import SECOND, Instant
from fairlead.core.tenancy import Role
from fairlead.core.validation import span_of
from fairlead.wire.endpoint import Ask, Empty, Endpoint
from fairlead.wire.text import iso, maybe_iso, parse_iso
from fairlead.wire.words import CircuitStateName

_YEAR: Final = 366 * 86_400


class CircuitLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the circuit of a task type opens, and how it closes again."""

    failure_ratio: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """It opens when at least this share of the outcomes within the window are failures."""
    window_seconds: Annotated[float, Meta(ge=0.001, le=_YEAR)] = 60.0
    """Over how long outcomes are counted."""
    min_outcomes: Annotated[int, Meta(ge=1, le=1_000_000)] = 20
    """It never opens on fewer outcomes than these."""
    open_seconds: Annotated[float, Meta(ge=0.001, le=_YEAR)] = 30.0
    """How long the tasks wait before some are let through again."""
    probes: Annotated[int, Meta(ge=1, le=1_000)] = 3
    """How many tasks are let through then; all must pass."""


class CircuitRequest(CircuitLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a circuit; what is left out is at its default."""

    declared: bool = False
    """Whether a program declares it; if so, settings that a person has made stay as they are."""


class CircuitShown(Struct, frozen=True, kw_only=True):
    """The circuit of a task type, and how it stands."""

    task_type: str
    state: CircuitStateName
    """`closed`: tasks are claimed. `open`: they wait. `half_open`: a few are let through to see whether they pass."""
    since: str | None
    """Since when it stands so; null if it was always closed."""
    half_opens_at: str | None
    """While it is open: when a few tasks are let through."""
    outcomes: int
    """How many attempts ended within the window; unless it is closed, how many had when it opened."""
    failures: int
    """How many of them failed."""
    probes_passed: int
    """While it is half-open: how many of those that were let through have passed."""
    settings: CircuitLimits
    declared: bool
    """Whether the settings are those that a program declares."""


class CircuitList(Struct, frozen=True, kw_only=True):
    """The circuits, by task type."""

    circuits: list[CircuitShown]


def settings_of(limits: CircuitLimits) -> CircuitSettings:
    """The settings that a request describes."""
    return CircuitSettings(
        failure_ratio=limits.failure_ratio,
        window=span_of("window_seconds", limits.window_seconds),
        min_outcomes=limits.min_outcomes,
        open_for=span_of("open_seconds", limits.open_seconds),
        probes=limits.probes,
    )


def request_of(settings: CircuitSettings, *, declared: bool = False) -> CircuitRequest:
    """The request that sets a circuit."""
    return CircuitRequest(
        failure_ratio=settings.failure_ratio,
        window_seconds=settings.window / SECOND,
        min_outcomes=settings.min_outcomes,
        open_seconds=settings.open_for / SECOND,
        probes=settings.probes,
        declared=declared,
    )


def circuit_shown(task_type: str, circuit: Circuit, now: Instant) -> CircuitShown:
    """A circuit as it stands at this moment."""
    status, settings = circuit.status, circuit.settings
    outcomes, failures = circuit.tally(now)
    return CircuitShown(
        task_type=task_type,
        state=status.state.value,
        since=iso(status.since) if status.since else None,
        half_opens_at=maybe_iso(status.until),
        outcomes=outcomes,
        failures=failures,
        probes_passed=status.passed,
        settings=CircuitLimits(
            failure_ratio=settings.failure_ratio,
            window_seconds=settings.window / SECOND,
            min_outcomes=settings.min_outcomes,
            open_seconds=settings.open_for / SECOND,
            probes=settings.probes,
        ),
        declared=circuit.declared,
    )


def circuits_shown(circuits: Mapping[str, Circuit], now: Instant) -> list[CircuitShown]:
    """Circuits as they stand at this moment, by task type."""
    return [circuit_shown(task_type, circuit, now) for task_type, circuit in sorted(circuits.items())]


def circuit_of(shown: CircuitShown) -> Circuit:
    """A circuit that is shown like this; who probes is not shown."""
    return Circuit(
        settings=settings_of(shown.settings),
        status=CircuitStatus(
            state=CircuitState(shown.state),
            since=0 if shown.since is None else parse_iso(shown.since),
            until=None if shown.half_opens_at is None else parse_iso(shown.half_opens_at),
            outcomes=shown.outcomes,
            failures=shown.failures,
            passed=shown.probes_passed,
        ),
        declared=shown.declared,
    )


def _shown(path: Mapping[str, str], circuit: Circuit, now: Instant) -> CircuitShown:
    return circuit_shown(path["task_type"], circuit, now)


LIST_CIRCUITS: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/circuits",
    summary="List the circuits",
    role=Role.READ,
    answers={200: CircuitList},
)
SHOW: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/task-types/{task_type}/circuit",
    summary="Show a circuit",
    role=Role.READ,
    answers={200: CircuitShown},
    problems=(404,),
    calls="circuits.get",
    shows=_shown,
    about="Show the circuit of a task type.",
)
PUT: Final = Endpoint[Empty, CircuitRequest](
    method="PUT",
    path="/api/v1/task-types/{task_type}/circuit",
    summary="Set a circuit",
    role=Role.ADMIN,
    body=CircuitRequest,
    answers={200: CircuitShown},
    problems=(404,),
)
REMOVE: Final = Endpoint[Empty, None](
    method="DELETE",
    path="/api/v1/task-types/{task_type}/circuit",
    summary="Remove a circuit",
    role=Role.ADMIN,
    answers={200: CircuitShown},
    problems=(404,),
    calls="circuits.remove",
    shows=_shown,
    about="Remove the circuit breaker of a task type, so that its tasks are claimed however many fail.",
)
OPEN_CIRCUIT: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/task-types/{task_type}/circuit/open",
    summary="Open a circuit",
    role=Role.ADMIN,
    answers={200: CircuitShown},
    problems=(404,),
    calls="circuits.open",
    shows=_shown,
    about="Open a circuit by hand: the type's tasks wait, and some are tried after the usual time. What runs goes on.",
)
CLOSE_CIRCUIT: Final = Endpoint[Empty, None](
    method="POST",
    path="/api/v1/task-types/{task_type}/circuit/close",
    summary="Close a circuit",
    role=Role.ADMIN,
    answers={200: CircuitShown},
    problems=(404,),
    calls="circuits.close",
    shows=_shown,
    about="Close a circuit by hand: the type's tasks are claimed again, and its counts start at zero.",
)


class RemoteCircuits:
    """The circuits behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def all(self) -> dict[str, Circuit]:
        """Every circuit, by its task type."""
        listed = await self._ask(LIST_CIRCUITS, CircuitList)
        return {shown.task_type: circuit_of(shown) for shown in listed.circuits}

    async def find(self, task_type: str) -> Circuit | None:
        """The circuit of a task type, if it has one."""
        try:
            return await self.get(task_type)
        except CircuitNotFound:
            return None

    async def get(self, task_type: str) -> Circuit:
        """The circuit of a task type; raises CircuitNotFound if it has none."""
        return await self._one(SHOW, task_type)

    async def set(self, task_type: str, settings: CircuitSettings) -> Circuit:
        """Set the circuit breaker of a task type, or change its settings; its state stays as it is."""
        return await self._one(PUT, task_type, request_of(check_circuit("circuit", settings)))

    async def declare(self, circuits: Mapping[str, CircuitSettings]) -> None:
        """Set the circuits that a program declares, but for those that a person has set."""
        for task_type, settings in circuits.items():
            with contextlib.suppress(RecordUnreadable, CircuitNotFound):
                await self._one(PUT, task_type, request_of(settings, declared=True))

    async def remove(self, task_type: str) -> Circuit:
        """Take a task type's circuit away; how it stood."""
        return await self._one(REMOVE, task_type)

    async def open(self, task_type: str) -> Circuit:
        """Open a circuit by hand: its tasks wait, and some are tried after the usual time."""
        return await self._one(OPEN_CIRCUIT, task_type)

    async def close(self, task_type: str) -> Circuit:
        """Close a circuit by hand: its tasks are claimed again, and its counts start at zero."""
        return await self._one(CLOSE_CIRCUIT, task_type)

    async def _one(self, endpoint: Endpoint[Any, Any], task_type: str, body: object = None) -> Circuit:
        name = check_name("task_type", task_type)
        return circuit_of(await self._ask(endpoint, CircuitShown, body, subject=name, task_type=name))
