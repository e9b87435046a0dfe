"""Circuits: how they are set and shown, over HTTP and by `--json` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from fairlead.core.circuit import Circuit, CircuitSettings, CircuitState, CircuitStatus
from fairlead.core.instant import SECOND, Instant, span
from fairlead.wire.moments import iso, maybe_iso, parse_iso

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
    """Whether a program declares it: then settings that a person has made stay as they are."""


class CircuitShown(Struct, frozen=True, kw_only=True):
    """The circuit of a task type, and how it stands."""

    task_type: str
    state: str
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
        window=span(limits.window_seconds),
        min_outcomes=limits.min_outcomes,
        open_for=span(limits.open_seconds),
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
