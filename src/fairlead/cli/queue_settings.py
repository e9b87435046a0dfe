"""The settings of a queue's own: `queues set`, which reads them from its options, and how they are said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from cyclopts import Parameter

from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.ordering import describe, parse_order
from fairlead.cli.output import write, write_json
from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import SECOND, span
from fairlead.core.limits import Rate
from fairlead.core.queue import UNBOUNDED, QueueSettings
from fairlead.core.task import Priority
from fairlead.engine.inline import run_inline
from fairlead.engine.queues import QueueChanges, changed
from fairlead.wire.queues import queue_shown

DEFAULT: Final = "default"
"""The value that goes back to what the settings of all say."""

Name = Annotated[str, Parameter(name="QUEUE", help="Its name.")]


def change(
    queue: Name,
    /,
    *,
    bound: Annotated[str | None, Parameter(help="How many tasks may wait in it; 0 for no bound.", metavar="N")] = None,
    order: Annotated[
        str | None,
        Parameter(
            help="How the next task is chosen: `strict`, `promote`, `promote:low=60,medium=120,high=300` (seconds), "
            "`head_start:critical=600,high=60`, `weighted:critical=8,high=4,medium=2,low=1`.",
            metavar="POLICY",
        ),
    ] = None,
    priority: Annotated[str | None, Parameter(help="The priority of tasks that name none.", metavar="WORD")] = None,
    timeout: Annotated[
        str | None, Parameter(help="How long an attempt may take of tasks that do not say.", metavar="SECONDS")
    ] = None,
    max_retries: Annotated[
        str | None, Parameter(help="How often tasks that do not say are retried.", metavar="N")
    ] = None,
    max_crashes: Annotated[
        str | None, Parameter(help="How many lost workers tasks that do not say may cost.", metavar="N")
    ] = None,
    running: Annotated[str | None, Parameter(help="How many of its tasks may run at once.", metavar="N")] = None,
    rate: Annotated[
        str | None, Parameter(help="How many of its tasks may start in a while: `10/s`, `100/m`.", metavar="RATE")
    ] = None,
    type_running: Annotated[
        tuple[str, ...],
        Parameter(help="How many tasks of a type may run at once; may be given more than once.", metavar="TYPE=N"),
    ] = (),
    type_rate: Annotated[
        tuple[str, ...],
        Parameter(help="How many tasks of a type may start in a while; likewise.", metavar="TYPE=RATE"),
    ] = (),
    key_running: Annotated[
        str | None,
        Parameter(help="How many tasks of each concurrency key may run at once; 0 for as many as come.", metavar="N"),
    ] = None,
    key_rate: Annotated[
        str | None,
        Parameter(help="How many tasks of each concurrency key may start in a while.", metavar="RATE"),
    ] = None,
    reset: Annotated[bool, Parameter(help="First go back to the settings of all.")] = False,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Change a queue's bound, its order of service, its limits or the defaults of its tasks.

    The value `default` goes back to what the settings of all say.
    """
    changes = QueueChanges()
    if bound is not None:
        changes["bound"] = _count("bound", bound)
    if order is not None:
        changes["order"] = None if order == DEFAULT else parse_order(order)
    if priority is not None:
        changes["priority"] = None if priority == DEFAULT else Priority.parse(priority)
    if timeout is not None:
        changes["timeout"] = None if timeout == DEFAULT else span(_number("timeout", timeout))
    if max_retries is not None:
        changes["max_retries"] = _count("max-retries", max_retries)
    if max_crashes is not None:
        changes["max_crashes"] = _count("max-crashes", max_crashes)
    changes |= _limit_changes(running, rate, type_running, type_rate, key_running, key_rate)
    if not changes and not reset:
        raise InvalidSettings("nothing is to be changed; say what with --bound, --order, --priority, … or --reset")
    changed(QueueSettings(), changes)
    with reached(common, create=True) as connection:
        engine = connection.inline()
        if reset:
            run_inline(engine.queues.reset(queue))
        own = run_inline(engine.queues.change(queue, **changes))
    if common.json:
        write_json(queue_shown(queue, own))
        return
    said = in_short(own)
    write(f"queue {queue} has {said}" if said else f"queue {queue} has the settings of all")


def in_short(own: QueueSettings) -> str:
    """What is said of a queue alone, on one line."""
    return ", ".join(f"{label} {value}" for label, value in said_of(own).items() if value != DEFAULT)


def said_of(own: QueueSettings) -> dict[str, str]:
    """What is said of a queue alone, by its label; `DEFAULT` for what is not."""

    def shown(value: Any, text: str) -> str:
        return DEFAULT if value is None else text

    return {
        "bound": shown(own.bound, "none" if own.bound == UNBOUNDED else f"{own.bound or 0:,}"),
        "order": DEFAULT if own.order is None else describe(own.order),
        "priority": DEFAULT if own.priority is None else own.priority.word,
        "timeout": shown(own.timeout, f"{(own.timeout or 0) / SECOND:g} s"),
        "retries": shown(own.max_retries, f"{own.max_retries}"),
        "crashes": shown(own.max_crashes, f"{own.max_crashes}"),
        **_limits_said(own),
    }


def _limits_said(own: QueueSettings) -> dict[str, str]:
    """The limits that there are."""
    said: dict[str, str] = {}
    for label, running, rate in (
        ("at once", own.running, own.rate),
        *(
            (f"{name} at once", own.type_running.get(name), own.type_rate.get(name))
            for name in sorted({*own.type_running, *own.type_rate})
        ),
        ("each key", own.key_running, own.key_rate),
    ):
        words = [] if running is None else [f"{running:,}" if running else "any number"]
        words += [] if rate is None else [f"{rate}"]
        if words:
            said[label] = ", ".join(words)
    return said


def _limit_changes(
    running: str | None,
    rate: str | None,
    type_running: Sequence[str],
    type_rate: Sequence[str],
    key_running: str | None,
    key_rate: str | None,
) -> QueueChanges:
    changes = QueueChanges()
    if running is not None:
        changes["running"] = _count("running", running)
    if rate is not None:
        changes["rate"] = _rate(rate)
    if type_running:
        pairs = [_pair("type-running", each) for each in type_running]
        changes["type_running"] = {name: _count("type-running", text) for name, text in pairs}
    if type_rate:
        changes["type_rate"] = {name: _rate(text) for name, text in (_pair("type-rate", each) for each in type_rate)}
    if key_running is not None:
        changes["key_running"] = _count("key-running", key_running)
    if key_rate is not None:
        changes["key_rate"] = _rate(key_rate)
    return changes


def _rate(text: str) -> Rate | None:
    return None if text == DEFAULT else Rate.parse(text)


def _pair(option: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidSettings(
            f"--{option} {text!r} names no value; write the task type, = and the value, such as send=2"
        )
    return name, value


def _count(option: str, text: str) -> int | None:
    if text == DEFAULT:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidSettings(f"--{option} {text!r} is not a whole number; use one, or {DEFAULT}") from None


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
        span(number)
    except (ValueError, OverflowError):
        raise InvalidSettings(f"--{option} {text!r} is not a number of seconds; use one, or {DEFAULT}") from None
    return number
