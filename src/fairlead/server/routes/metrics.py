"""Metrics, as Prometheus reads them: how the store stands, and what this process did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp

from fairlead.core.circuit import Circuit, CircuitState
from fairlead.core.instant import SECOND, Span
from fairlead.core.task import Priority, State
from fairlead.core.tenancy import Role
from fairlead.engine.metrics import names
from fairlead.engine.metrics.collector import MOST_NAMES, OTHER
from fairlead.engine.metrics.names import MEDIA_TYPE, Family, Samples, render
from fairlead.engine.queue_ages import AtRisk
from fairlead.engine.stats import QueueStats, Stats
from fairlead.engine.worker_records import WORKER_WORDS
from fairlead.server.endpoint import Call, Served
from fairlead.wire.endpoint import Empty, Media

_NO_RISK: Final[AtRisk] = {}


def _never(task_type: str) -> None:
    """No type has an alert threshold."""


async def show_metrics(call: Call[Empty, None]) -> ASGIApp:
    """Show how the queues stand and what this server did, in the text format of Prometheus.

    How the queues stand is counted once a second at most, at a cost that does not grow with the number of tasks. With a
    key that is bound to a tenant, only the figures of the queues that are bound to that tenant are shown.
    """
    stats, late, at_risk = await call.view.recent()
    families = [*gauges(stats, late, at_risk, call.view.rules.alert_at)]
    if call.principal.tenant is None and call.state.metrics is not None:
        families += call.state.metrics.collect()
    return Response(render(families), headers={"content-type": MEDIA_TYPE})


def gauges(
    stats: Stats, late: Span, at_risk: AtRisk = _NO_RISK, alert_at: Callable[[str], int | None] = _never
) -> Iterator[tuple[Family, Samples]]:
    """What there is to read off a store at one moment; `alert_at` tells the alert threshold of a task type."""
    queues = _bounded(stats.queues)
    lines = [
        (name, priority, [each.lines[priority] for each in standing])
        for name, standing in queues.items()
        for priority in Priority
    ]
    yield (
        names.QUEUE_DEPTH,
        [((name, priority.word), sum(line.depth for line in each)) for name, priority, each in lines],
    )
    yield (
        names.QUEUE_OLDEST_AGE,
        [((name, priority.word), max(line.oldest_age for line in each) / SECOND) for name, priority, each in lines],
    )
    yield names.AT_RISK, _at_risk(stats, queues, at_risk)
    yield (
        names.QUEUE_PAUSED,
        [((name,), int(all(each.paused for each in standing))) for name, standing in queues.items()],
    )
    yield names.DEAD_LETTER_SIZE, [((), stats.states[State.DEAD_LETTER])]
    dead = _dead_letters(stats)
    shown = sorted(dead, key=lambda name: (-dead[name], name))[:MOST_NAMES]
    yield names.DEAD_LETTERS_WAITING, _summed(dead.items(), shown)
    yield names.DEAD_LETTER_ALERT, [((name,), limit) for name in shown if (limit := alert_at(name)) is not None]
    yield names.CIRCUIT_STATE, _circuit_states(stats.circuits)
    yield names.QUARANTINED, [((kind,), count) for kind, count in sorted(stats.quarantined.items())]
    yield names.TASK_STATE, [((state.value,), count) for state, count in stats.states.items()]
    yield names.WORKERS, [((word,), getattr(stats.workers, word)) for word in WORKER_WORDS]
    capacity = stats.workers.total_capacity
    yield names.CAPACITY_USED, [((), stats.workers.used_capacity / capacity if capacity else 0)]
    yield names.SCHEDULE_LATE, [((), late / SECOND)]
    if stats.journal_behind is not None:
        yield names.JOURNAL_BEHIND, [((), stats.journal_behind)]
    if stats.intact is not None:
        yield names.STORE_INTACT, [((), int(stats.intact))]


def _at_risk(stats: Stats, queues: Collection[str], at_risk: AtRisk) -> Samples:
    counts = dict.fromkeys(((name, priority.word) for name in queues for priority in Priority), 0)
    for (name, priority), count in at_risk.items():
        # Of what there is for the caller.
        if name in stats.queues:
            counts[name if name in queues else OTHER, priority.word] += count
    return list(counts.items())


def _dead_letters(stats: Stats) -> Counter[str]:
    """How many dead letters there are, by type."""
    counts: Counter[str] = Counter()
    for queue in stats.queues.values():
        counts.update(queue.dead_letters)
    return counts


def _summed(counts: Iterable[tuple[str, int]], shown: Collection[str]) -> Samples:
    """Counts by name; those that are not to be shown by their own, under one."""
    sums: Counter[str] = Counter()
    known = frozenset(shown)
    for name, count in counts:
        sums[name if name in known else OTHER] += count
    return [((name,), count) for name, count in sums.items()]


def _circuit_states(circuits: Mapping[str, Circuit]) -> Samples:
    """In which state each circuit is; of very many, those that are not closed go before the others."""
    ranked = sorted(circuits, key=lambda name: (circuits[name].state is CircuitState.CLOSED, name))
    shown = frozenset(ranked[:MOST_NAMES])
    counts: Counter[tuple[str, str]] = Counter()
    for name in ranked:
        for state in CircuitState:
            counts[name if name in shown else OTHER, state.value] += circuits[name].state is state
    return list(counts.items())


def _bounded(queues: dict[str, QueueStats]) -> dict[str, list[QueueStats]]:
    """The queues by name; of very many, those with most tasks, and the rest under one name."""
    if len(queues) <= MOST_NAMES:
        return {name: [queue] for name, queue in queues.items()}
    ranked = sorted(queues, key=lambda name: (-sum(queues[name].states.values()), name))
    shown = {name: [queues[name]] for name in sorted(ranked[:MOST_NAMES])}
    shown.setdefault(OTHER, []).extend(queues[name] for name in ranked[MOST_NAMES:])
    return shown


ENDPOINTS = (
    Served(
        method="GET",
        path="/metrics",
        handler=show_metrics,
        summary="Show metrics",
        role=Role.READ,
        answers={200: Media(MEDIA_TYPE)},
    ),
)
