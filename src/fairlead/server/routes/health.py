"""How a store and a server are: the quarantine, the doctor, probes, and metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from starlette.responses import Response
from starlette.types import ASGIApp

from fairlead._version import __version__
from fairlead.admin.doctor import api as doctor_api
from fairlead.admin.doctor.api import diagnosis_shown
from fairlead.admin.quarantine import api as quarantine_api
from fairlead.admin.quarantine.api import QuarantineList, RestoreRequest, parts_of, quarantined_shown, quarantined_whole
from fairlead.core.circuit import Circuit, CircuitState
from fairlead.core.errors import StoreError
from fairlead.core.instant import SECOND, Span
from fairlead.core.task import Priority, State
from fairlead.core.tenancy import Role
from fairlead.engine.fair_keys import FairKeys
from fairlead.engine.metrics import names
from fairlead.engine.metrics.collector import MOST_NAMES, OTHER
from fairlead.engine.metrics.names import MEDIA_TYPE, Family, Samples, render
from fairlead.engine.queue_ages import AtRisk
from fairlead.engine.stats import QueueStats, Stats
from fairlead.engine.worker_records import WORKER_WORDS
from fairlead.server.endpoint import Answer, Call, EndpointGroup, Served, serve
from fairlead.server.http.problems import Refusal
from fairlead.storage.protocol import Journaled
from fairlead.wire.endpoint import Empty, Media


async def list_quarantined(call: Call[Empty, None]) -> Answer:
    """List the records, tasks among them, that cannot be decoded and were set aside."""
    return Answer(
        QuarantineList(records=[quarantined_shown(each) for each in await call.state.engine.quarantine.all()])
    )


async def show_quarantined(call: Call[Empty, None]) -> Answer:
    """Show a record in quarantine, with its bytes in base64, so that it can be repaired."""
    return Answer(quarantined_whole(await call.state.engine.quarantine.get(_key(call))))


async def restore_quarantined(call: Call[Empty, RestoreRequest]) -> Answer:
    """Restore a record from quarantine: with the bytes that are given, or with those that were found.

    Refused if they cannot be decoded, or if something else is in that place by now.
    """
    kept, texts = call.state.engine.quarantine, call.body.parts
    parts = None if texts is None else parts_of(texts)
    return Answer(quarantined_whole(await kept.restore(_key(call), parts)))


async def discard_quarantined(call: Call[Empty, None]) -> Answer:
    """Delete a record in quarantine for good, with its bytes; the answer is the record as it was.

    A queue whose settings are discarded has none of its own, and is no longer paused; a key, or a schedule, is gone.
    """
    return Answer(quarantined_whole(await call.state.engine.quarantine.discard(_key(call))))


def _key(call: Call[Any, Any]) -> str:
    return f"{call.path['kind']}/{call.path['name']}"


async def diagnose(call: Call[Empty, None]) -> Answer:
    """Check the store's durability, clocks, versions, limits and leftovers, and say how to fix each problem.

    It changes nothing, and costs about the same however many tasks there are. The answer is 200 whatever was found.
    """
    return Answer(diagnosis_shown(await call.state.engine.diagnose()))


PATIENCE: Final = 2.0
"""How long the store may take to answer, in seconds."""


class Health(Struct, frozen=True, kw_only=True):
    """The server is well."""

    status: Literal["ok"] = "ok"
    version: str = __version__


async def healthz(call: Call[Empty, None]) -> Answer:
    """Say that the server is alive, whether or not it can reach its store."""
    return Answer(Health())


async def readyz(call: Call[Empty, None]) -> Answer:
    """Say whether the server can reach its store and is not shutting down; the problem says why it is not ready."""
    if call.state.stopping.is_set():
        raise _unready("the server is shutting down; ask another one")
    store = call.state.engine.store
    try:
        async with asyncio.timeout(PATIENCE):
            # The cheapest question that every store must really answer; there are no such records.
            await store.scan("readiness")
            lost = await store.loss() if isinstance(store, Journaled) else None
    except TimeoutError:
        raise _unready(f"the store did not answer within {PATIENCE:g} s; see whether it is up and reachable") from None
    except StoreError as error:
        raise _unready(str(error)) from None
    if lost is not None:
        raise _unready(lost)
    return Answer(Health())


def _unready(reason: str) -> Refusal:
    return Refusal("store-unavailable", reason, headers=(("retry-after", "1"),))


_ANY: Final = "any"
"""The type of tasks that nobody serves whatever their type."""
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
    yield names.UNSERVED, _unserved(stats, queues)
    shared = [(name, each.fair) for name, each in stats.queues.items() if each.fair is not None]
    yield names.FAIR_KEYS, _summed(((name, fair.keys) for name, fair in shared), queues)
    yield names.FAIR_KEY_WAITING, _waiting_by_key(shared, queues)
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
    yield names.CAPACITY_USED, [((), stats.workers.used_ratio)]
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


def _unserved(stats: Stats, queues: Collection[str]) -> Samples:
    """What no worker could run, by kind; of very many kinds those of which most wait, and the rest as other."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for name, queue in stats.queues.items():
        known, waiting = name if name in queues else OTHER, queue.unserved
        for each in waiting.first:
            counts[known, _ANY if each.type is None else each.type, str(each.lack.code)] += each.tasks
        if waiting.kinds > len(waiting.first):
            counts[known, OTHER, OTHER] += waiting.tasks - sum(kind.tasks for kind in waiting.first)
    shown = frozenset(kind for kind, _ in counts.most_common(MOST_NAMES))
    sums: Counter[tuple[str, str, str]] = Counter()
    for kind, count in counts.items():
        sums[kind if kind in shown else (OTHER, OTHER, OTHER)] += count
    return list(sums.items())


def _waiting_by_key(shared: Sequence[tuple[str, FairKeys]], queues: Collection[str]) -> Samples:
    """How many tasks of fair keys wait: of very many keys those of which most do, and the rest as other."""
    named = Counter({(name, key): count for name, fair in shared for key, count in fair.waiting.items()})
    shown = frozenset(pair for pair, _ in named.most_common(MOST_NAMES) if pair[0] in queues)
    sums: Counter[tuple[str, str]] = Counter()
    for (name, key), count in named.items():
        known = name if name in queues else OTHER
        sums[(name, key) if (name, key) in shown else (known, OTHER)] += count
    for name, fair in shared:
        if fair.others:
            sums[name if name in queues else OTHER, OTHER] += fair.others
    return list(sums.items())


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
    *EndpointGroup(
        "quarantine", "Records in quarantine: they cannot be decoded, and can be shown, restored and discarded."
    ).of(
        serve(quarantine_api.LIST_QUARANTINED, list_quarantined),
        serve(quarantine_api.SHOW, show_quarantined, "show"),
        serve(quarantine_api.RESTORE, restore_quarantined, "restore"),
        serve(quarantine_api.DISCARD, discard_quarantined, "discard"),
    ),
    *EndpointGroup("doctor", "Checks of the store and of what runs on it.").of(
        serve(doctor_api.DIAGNOSE, diagnose),
    ),
    *EndpointGroup("health", "Whether the server is alive, and ready for requests.").of(
        Served(
            method="GET",
            path="/healthz",
            handler=healthz,
            summary="Check that the server is alive",
            role=None,
            answers={200: Health},
        ),
        Served(
            method="GET",
            path="/readyz",
            handler=readyz,
            summary="Check that the server is ready",
            role=None,
            answers={200: Health},
            problems=(503,),
        ),
    ),
    *EndpointGroup("metrics", "Metrics, as Prometheus reads them: how the store stands, and what this process did.").of(
        Served(
            method="GET",
            path="/metrics",
            handler=show_metrics,
            summary="Show metrics",
            role=Role.READ,
            answers={200: Media(MEDIA_TYPE)},
        ),
    ),
)
