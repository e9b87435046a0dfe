"""Circuits: a task type that keeps failing is not claimed for a while, then tried with a few tasks.

A circuit is closed while all is well: the outcomes of attempts are counted over a window. When too many fail it opens,
and the type's tasks wait. After a while it half-opens: a few tasks are let through as probes, each known by the token
of its lease. If all of them pass, it closes; if one fails, it opens again.

Everything here is a step from one circuit to the next. Many processes take such steps at once, each by compare-and-set.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LONGEST, MILLISECOND, MINUTE, SECOND, Instant, Span
from fairlead.core.task import Reason, State, Status
from fairlead.core.validation import bad_setting, check_count, check_number, check_span, check_type

_SLICES: Final = 10
"""Into how many parts a window is cut: what is counted is forgotten by the part."""

_MOST: Final = 1_000_000
_MOST_PROBES: Final = 1_000


class CircuitState(enum.StrEnum):
    """How a circuit stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When the circuit of a task type opens, and how it closes again."""

    failure_ratio: float = 0.5
    """It opens when at least this share of the outcomes within the window are failures."""
    window: Span = MINUTE
    min_outcomes: int = 20
    """It never opens on fewer outcomes than these: one failure of one is no trend."""
    open_for: Span = 30 * SECOND
    """How long the tasks wait before some are let through again."""
    probes: int = 3
    """How many tasks are let through then, in all processes together; all must pass."""

    def __post_init__(self) -> None:
        check_number("failure_ratio", self.failure_ratio, 0.0, 1.0, bad_setting)
        if not self.failure_ratio:
            raise InvalidSettings("failure_ratio 0 is out of range; use more than 0, and at most 1")
        check_span("window", self.window, MILLISECOND, LONGEST, bad_setting)
        check_span("open_for", self.open_for, MILLISECOND, LONGEST, bad_setting)
        check_count("min_outcomes", self.min_outcomes, 1, _MOST, bad_setting)
        check_count("probes", self.probes, 1, _MOST_PROBES, bad_setting)


def check_circuit(name: str, value: object) -> CircuitSettings:
    """The settings of a circuit, which have checked themselves when they were made."""
    return check_type(name, value, CircuitSettings, "write CircuitSettings(…)", bad_setting)


class Slice(Struct, frozen=True, array_like=True):
    """What was counted in one part of the window."""

    number: int
    passed: int
    failed: int


class Probe(Struct, frozen=True, array_like=True):
    """Tasks that were let through under one lease token and have not been answered."""

    token: str
    count: int
    until: Instant
    """When they are given up: the process that took them may have died without a word."""
    patience: Span = 0
    """How long that was ahead when it was decided; 0 if an earlier version did."""

    def is_held(self, now: Instant) -> bool:
        """Whether they are still waited for: not for longer than they were to be, if the clock has gone back since."""
        return now < self.until and (self.patience == 0 or self.until - now <= 2 * self.patience)


class ProbeAnswer(Struct, frozen=True):
    """What became of an attempt while the circuit was not closed."""

    token: str
    passed: bool | None
    """None if it says nothing: it was handed back, cancelled or rejected."""


class CircuitStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a circuit stands."""

    state: CircuitState = CircuitState.CLOSED
    since: Instant = 0
    until: Instant | None = None
    """While it is open: when tasks are let through again."""
    outcomes: int = 0
    """How many outcomes had been counted when it opened, unless it is closed; likewise `failures`."""
    failures: int = 0
    slices: tuple[Slice, ...] = ()
    """While it is closed: what was counted."""
    probes: tuple[Probe, ...] = ()
    """While it is half-open: the tasks that were let through."""
    passed: int = 0
    """How many of them have passed."""


class Circuit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The circuit of one task type."""

    settings: CircuitSettings = CircuitSettings()
    status: CircuitStatus = CircuitStatus()
    declared: bool = False
    """Whether its settings are those that a program declares, which a person has not changed."""

    @property
    def state(self) -> CircuitState:
        return self.status.state

    def tally(self, now: Instant) -> tuple[int, int]:
        """How many outcomes count, and how many of them are failures: in the window, or when it opened."""
        if self.state is not CircuitState.CLOSED or not self.status.slices:
            return self.status.outcomes, self.status.failures
        slices = _recent(self, now)
        failures = sum(each.failed for each in slices)
        return failures + sum(each.passed for each in slices), failures


_FAILED: Final = frozenset(
    {
        Reason.FAILED,
        Reason.TIMED_OUT,
        Reason.CRASHED,
        Reason.WORKER_LOST,
        Reason.RETRIES_USED_UP,
        Reason.RULE_USED_UP,
        Reason.CRASH_LOOP,
    }
)


def verdict(after: Status) -> bool | None:
    """Whether an attempt passed that left its task like this; None if that says nothing of its type.

    A rejected task says something of the task, and not of what all tasks of its type need.
    """
    if after.state is State.COMPLETED:
        return True
    return False if after.reason in _FAILED else None


def configured(circuit: Circuit | None, settings: CircuitSettings, *, declared: bool) -> Circuit:
    """The circuit with these settings; what was counted by others does not count for them."""
    if circuit is None:
        return Circuit(settings=settings, declared=declared)
    status = circuit.status if settings == circuit.settings else replace(circuit.status, slices=())
    return Circuit(settings=settings, status=status, declared=declared)


def opened(circuit: Circuit, now: Instant) -> Circuit:
    """The circuit open from now on."""
    outcomes, failures = circuit.tally(now)
    until = now + circuit.settings.open_for
    status = CircuitStatus(state=CircuitState.OPEN, since=now, until=until, outcomes=outcomes, failures=failures)
    return replace(circuit, status=status)


def closed(circuit: Circuit, now: Instant) -> Circuit:
    """The circuit closed from now on, with nothing counted."""
    return replace(circuit, status=CircuitStatus(since=now))


def counted(circuit: Circuit, passed: int, failed: int, now: Instant) -> Circuit:
    """The circuit after so many outcomes of attempts that began while it was closed: open, if that is too much."""
    if circuit.state is not CircuitState.CLOSED or not passed + failed:
        return circuit
    number = now // _part(circuit)
    slices = _recent(circuit, now)
    own = next((each for each in slices if each.number == number), Slice(number, 0, 0))
    others = tuple(each for each in slices if each.number != number)
    slices = (*others, Slice(number, own.passed + passed, own.failed + failed))
    after = replace(circuit, status=replace(circuit.status, slices=slices))
    outcomes, failures = after.tally(now)
    settings = circuit.settings
    if outcomes >= settings.min_outcomes and failures >= settings.failure_ratio * outcomes:
        return opened(after, now)
    return after


def free_probes(circuit: Circuit, now: Instant) -> int:
    """How many more tasks may be let through now; none while it is closed, when nothing is held back."""
    match circuit.state:
        case CircuitState.CLOSED:
            return 0
        case CircuitState.OPEN:
            return circuit.settings.probes if _has_cooled(circuit, now) else 0
        case CircuitState.HALF_OPEN:
            out = sum(probe.count for probe in _held(circuit, now))
            return max(0, circuit.settings.probes - circuit.status.passed - out)


def _has_cooled(circuit: Circuit, now: Instant) -> bool:
    """Whether an open circuit has been open for long enough, or by a clock that has gone back since it opened."""
    since, until = circuit.status.since, circuit.status.until
    return until is None or now >= until or until - now > 2 * (until - since)


def reserved(circuit: Circuit, token: str, wanted: int, until: Instant, now: Instant) -> tuple[Circuit, int]:
    """The circuit with room for some tasks under this token, and for how many; it half-opens if it is time."""
    granted = min(wanted, free_probes(circuit, now))
    if granted == 0:
        return circuit, 0
    status = circuit.status
    if circuit.state is CircuitState.OPEN:
        status = replace(status, state=CircuitState.HALF_OPEN, since=now, until=None)
    probes = (*_held(circuit, now), Probe(token, granted, until, until - now))
    return replace(circuit, status=replace(status, probes=probes)), granted


def confirmed(circuit: Circuit, token: str, taken: int, until: Instant, now: Instant) -> Circuit:
    """The circuit when so many tasks were found for the room under this token, to be answered by this moment."""
    return _with_probe(circuit, Probe(token, taken, until, until - now))


def _with_probe(circuit: Circuit, changed: Probe) -> Circuit:
    """The circuit with this probe in place of the one under its token; without it, if nothing is left of it."""
    probes = (
        changed if probe.token == changed.token else probe
        for probe in circuit.status.probes
        if changed.count or probe.token != changed.token
    )
    return replace(circuit, status=replace(circuit.status, probes=tuple(probes)))


def answered(circuit: Circuit, answers: Iterable[ProbeAnswer], now: Instant) -> Circuit:
    """The circuit after probes were answered; what was no probe of its own changes nothing."""
    for answer in answers:
        probe = next((each for each in circuit.status.probes if each.token == answer.token), None)
        if probe is None or circuit.state is not CircuitState.HALF_OPEN:
            continue
        if answer.passed is False:
            return opened(circuit, now)
        circuit = _with_probe(circuit, replace(probe, count=probe.count - 1))
        if answer.passed:
            circuit = replace(circuit, status=replace(circuit.status, passed=circuit.status.passed + 1))
            if circuit.status.passed >= circuit.settings.probes:
                return closed(circuit, now)
    return circuit


def _held(circuit: Circuit, now: Instant) -> tuple[Probe, ...]:
    return tuple(probe for probe in circuit.status.probes if probe.is_held(now))


def _recent(circuit: Circuit, now: Instant) -> tuple[Slice, ...]:
    newest = now // _part(circuit)
    return tuple(each for each in circuit.status.slices if newest - _SLICES < each.number <= newest)


def _part(circuit: Circuit) -> Span:
    return max(1, circuit.settings.window // _SLICES)
