"""How tasks and stats look to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fairlead.cli.output import Cell, Column, on_terminal, pretty, write, write_styled, write_table
from fairlead.cli.times import ago, brief
from fairlead.core.circuit import Circuit, CircuitState
from fairlead.core.instant import SECOND, Instant
from fairlead.core.task import After, Entry, Failure, Priority, State, Task
from fairlead.engine.stats import Stats
from fairlead.engine.worker_records import WORKER_WORDS
from fairlead.wire.text import iso

STYLES: Final = {
    State.SCHEDULED: "cyan",
    State.QUEUED: "blue",
    State.EXECUTING: "yellow",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.DEAD_LETTER: "bold red",
    State.CANCELLED: "dim",
}
URGENT: Final = {Priority.CRITICAL: "bold red", Priority.HIGH: "yellow"}
CIRCUIT_STYLES: Final = {CircuitState.CLOSED: "green", CircuitState.OPEN: "bold red", CircuitState.HALF_OPEN: "yellow"}
WORKER_STYLES: Final = {"active": "green", "paused": "yellow", "draining": "yellow", "dead": "red"}
_LABEL_WIDTH: Final = 10
_NAMED: Final = 3
"""How many tasks that one waits for are named on its page, and how many kinds that no worker could run."""


def write_tasks(tasks: Sequence[Task], now: Instant) -> None:
    """A page of a listing."""
    columns = [
        Column("ID"),
        Column("STATE"),
        Column("PRIORITY"),
        Column("TYPE", cut=True),
        Column("QUEUE", cut=True),
        Column("AGE", right=True),
    ]
    rows: list[list[Cell | str]] = [
        [
            task.id,
            Cell(task.state, STYLES[task.state]),
            Cell(task.status.priority.word, URGENT.get(task.status.priority, "")),
            task.spec.type,
            task.spec.queue,
            brief(now - task.spec.created_at),
        ]
        for task in tasks
    ]
    write_table(columns, rows)


def write_task(task: Task, now: Instant) -> None:
    """Everything about one task."""
    spec, status = task.spec, task.status
    write_field("task", Cell(spec.id, "bold"))
    write_field("state", Cell(status.state, STYLES[status.state]), Cell(f" ({status.reason})"))
    if status.cancel_asked and not status.state.ended:
        write_field("", Cell("cancel was asked", "yellow"))
    write_field("type", Cell(spec.type))
    write_field("queue", Cell(spec.queue))
    write_field("priority", Cell(status.priority.word, URGENT.get(status.priority, "")))
    for label, text in _optional_lines(task):
        write_field(label, Cell(text))
    write()
    for label, at in _times(task):
        write_field(label, Cell(iso(at)), Cell(f"  {ago(at, now)}", "dim"))
    write()
    write_document("parameters", spec.parameters)
    if status.result is not None or status.state is State.COMPLETED:
        write_document("result", b"null" if status.result is None else status.result)
    if status.failure is not None:
        _failure(status.failure)
    if status.history:
        write()
        _history(status.history)


def summary(stats: Stats, now: Instant) -> Iterator[list[Cell]]:
    """How all queues stand, in a few lines: the states, the workers, and what is out of the ordinary."""
    counts = [
        Cell(f"{count:,} {state}", STYLES[state] if count else "dim") for state, count in stats.states.items() if count
    ]
    yield [cell for count in counts for cell in (count, Cell("  "))][:-1] or [Cell("no tasks")]
    yield [Cell(_workers(stats), "" if stats.workers.active else "dim")]
    if stats.next_alarm is not None:
        yield [Cell(f"next task due, or lease or retention ending, {ago(stats.next_alarm, now)}", "dim")]
    if stats.promoted_today:
        yield [Cell(f"{stats.promoted_today:,} promoted today", "dim")]
    if stats.journal_behind:
        yield [Cell(f"the journal has yet to learn of {stats.journal_behind:,}", "dim")]
    if paused := _paused(stats):
        yield [Cell(paused, "yellow")]
    yield from ([Cell(said, "red")] for said in _unserved(stats))
    if stats.quarantined:
        aside = ", ".join(f"{count:,} {kind}" for kind, count in sorted(stats.quarantined.items()))
        yield [Cell(f"in quarantine: {aside}; `fairlead quarantine list` shows them", "red")]
    for task_type, circuit in sorted(stats.circuits.items()):
        if circuit.state is not CircuitState.CLOSED:
            yield [Cell(f"circuit of {circuit_in_words(task_type, circuit, now)}", "yellow")]


def circuit_in_words(task_type: str, circuit: Circuit, now: Instant) -> str:
    """A circuit, in a few words."""
    if circuit.state is CircuitState.OPEN and circuit.status.until is not None:
        return f"{task_type} is open, tried again {ago(circuit.status.until, now)}"
    return f"{task_type} is {circuit_word(circuit.state)}"


def circuit_word(state: CircuitState) -> str:
    return state.value.replace("_", "-")


def write_stats(stats: Stats, now: Instant) -> None:
    """How all queues stand."""
    for said in summary(stats, now):
        write_styled(said)
    if not stats.queues:
        return
    write()
    columns = [Column("QUEUE", cut=True), Column("PRIORITY"), Column("WAITING", right=True)]
    columns += [Column("OLDEST", right=True), Column("TYPES", cut=True)]
    rows: list[list[Cell | str]] = []
    for name, queue in sorted(stats.queues.items()):
        types = ", ".join(f"{task_type} {depth:,}" for task_type, depth in sorted(queue.types.items()))
        for priority, line in queue.lines.items():
            first = priority is Priority.CRITICAL
            oldest = brief(line.oldest_age) if line.depth else "-"
            style = "" if line.depth else "dim"
            rows.append(
                [
                    name if first or not on_terminal() else "",
                    Cell(priority.word, URGENT.get(priority, "") if line.depth else "dim"),
                    Cell(f"{line.depth:,}", style),
                    Cell(oldest, style),
                    Cell(types, "dim") if first else "",
                ]
            )
    write_table(columns, rows)


def _paused(stats: Stats) -> str:
    queues = [name for name, queue in sorted(stats.queues.items()) if queue.paused]
    listed = [f"queue {name}" for name in queues] + [f"task type {name}" for name in stats.paused_types]
    return f"paused: {', '.join(listed)}" if listed else ""


def _unserved(stats: Stats) -> Iterator[str]:
    """The ready tasks that no live worker could run: of which most wait, and how many more kinds there are."""
    found = [(name, kind) for name, queue in sorted(stats.queues.items()) for kind in queue.unserved.first]
    found.sort(key=lambda each: -each[1].tasks)
    for name, kind in found[:_NAMED]:
        tasks = f"{kind.tasks:,} {'of type ' + kind.type if kind.type else ''}".strip()
        yield f"unserved: {tasks} in queue {name}, as {kind.reason}"
    more = sum(queue.unserved.kinds for queue in stats.queues.values()) - len(found[:_NAMED])
    if more:
        yield f"unserved: {more:,} more kinds of tasks; `fairlead doctor` says more"


def _workers(stats: Stats) -> str:
    workers, throughput = stats.workers, stats.throughput
    listed = ", ".join(f"{count:,} {word}" for word in WORKER_WORDS if (count := getattr(workers, word)))
    if not listed:
        return "no workers"
    by_kind = ", ".join(f"{kind} {each.used:,} of {each.capacity:,}" for kind, each in sorted(workers.slots.items()))
    room = f"{workers.used_capacity:,} of {workers.total_capacity:,} slots used" + (by_kind and f" ({by_kind})")
    ended = f"{throughput.completed:,} completed and {throughput.failed:,} failed in the last minute"
    return f"workers: {listed}; {room}; {ended}"


def write_field(label: str, *parts: Cell) -> None:
    """One line of what is known about a thing."""
    write_styled([Cell(f"{label:<{_LABEL_WIDTH}} ", "dim"), *parts])


def _optional_lines(task: Task) -> Iterator[tuple[str, str]]:
    spec, status = task.spec, task.status
    attempts = f"{status.attempts}, retries {status.retries} of {spec.max_retries}"
    if status.crashes:
        attempts += f", crashes {status.crashes} of {spec.max_crashes}"
    yield "attempts", attempts
    yield "timeout", f"{status.timeout / SECOND:g} s"
    if spec.requires:
        yield "requires", ", ".join(spec.requires)
    if spec.tags:
        yield "tags", ", ".join(spec.tags)
    if spec.key is not None:
        yield "key", spec.key
    if spec.concurrency_key is not None:
        yield "runs with", spec.concurrency_key
    if spec.fair_key is not None:
        yield "takes turns as", spec.fair_key
    if spec.tenant is not None:
        yield "tenant", spec.tenant
    if spec.trace is not None:
        yield "trace", spec.trace
    if spec.after is not None:
        yield "after", _awaited(task, spec.after)
    if status.lease is not None:
        yield "worker", status.lease.worker
    if status.progress is not None:
        yield "progress", f"{status.progress.percent:g} % {status.progress.message}".rstrip()


def _awaited(task: Task, after: After) -> str:
    """What a task waits for: whom, if they are few, and how many are left."""
    status, count = task.status, len(after.tasks)
    parts = [", ".join(after.tasks) if count <= _NAMED else f"{count:,} tasks"]
    if status.pending:
        parts.append(f"{status.pending:,} of {count:,} have not ended")
    if status.unmet:
        parts.append(f"{status.unmet:,} did not complete, so {after.rule.value}")
    return "; ".join(parts)


def _times(task: Task) -> Iterator[tuple[str, Instant]]:
    spec, status = task.spec, task.status
    yield "submitted", spec.created_at
    if status.state.waiting:
        yield "due" if status.state is State.SCHEDULED else "queued", status.ready_at
        if status.expires_at is not None:
            yield "expires", status.expires_at
    if status.started_at is not None:
        yield "started", status.started_at
    if status.ended_at is not None:
        yield "ended", status.ended_at
    if status.lease is not None:
        yield "lease end", status.lease.until
    if status.state.ended and status.alarm is not None:
        yield "kept until", status.alarm


def write_document(label: str, document: bytes) -> None:
    """A JSON text, on as many lines as it takes."""
    text = pretty(document)
    if "\n" not in text:
        write_field(label, Cell(text))
        return
    write_field(label)
    for line in text.split("\n"):
        write(f"  {line}")


def _failure(failure: Failure) -> None:
    write_field("error", Cell(f"{failure.type}: {failure.message}", "red"))
    if failure.traceback:
        for line in failure.traceback.rstrip().split("\n"):
            write(f"  {line}")


def _history(history: tuple[Entry, ...]) -> None:
    columns = [Column("AT"), Column("STATE"), Column("REASON"), Column("TRY", right=True), Column("TOOK", right=True)]
    columns += [Column("ERROR", cut=True)]
    rows: list[list[Cell | str]] = [
        [
            iso(entry.at)[:-4] + "Z",
            Cell(entry.state, STYLES[entry.state]),
            entry.reason,
            str(entry.attempt or ""),
            "" if entry.started_at is None else brief(entry.at - entry.started_at),
            "" if entry.failure is None else f"{entry.failure.type}: {entry.failure.message}",
        ]
        for entry in history
    ]
    write_table(columns, rows)
