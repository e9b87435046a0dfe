"""`watch`: a task on its way to its end, live on a terminal and line by line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from cyclopts import Parameter

from fairlead.admin.facade import Facade
from fairlead.cli import task_json
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, reached
from fairlead.cli.output import console, on_terminal, one_line, warn, write, write_json
from fairlead.cli.times import ago, brief
from fairlead.core.errors import StoreUnavailable
from fairlead.core.explain.explanation import Explanation
from fairlead.core.identity import TaskId, parse_task_id
from fairlead.core.task import State, Task
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.text import iso

if TYPE_CHECKING:
    from rich.progress import Progress

_FIRST_LOOK: Final = 0.05
_LAST_LOOK: Final = 0.5
"""Seconds between two looks at a task: often at first, then twice a second, which is as often as progress is told."""
_ASK_WHY: Final = 2.0
"""Seconds after which it is asked again why a task waits."""
_ASK_SELDOM: Final = 20
"""How many times as long as the answer took to wait before asking again, if that is longer: a long line is counted."""
_REPEAT: Final = 30.0
"""Seconds after which a line says again that the task waits, if only the numbers have changed."""


class Viewer(Protocol):
    """Whoever is shown how a task goes on."""

    def see(self, task: Task, why: Explanation | None) -> None:
        """The task stands like this; `why` says why it waits, if it does."""
        ...

    def trouble(self, error: StoreUnavailable | None) -> None:
        """The store cannot be reached just now; None: it can again."""
        ...


def watch(
    task_id: Annotated[str, Parameter(name="ID", help="Id of the task.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> int:
    """Watch a task until it has ended: why it waits, then its progress.

    On a terminal this is a live bar, elsewhere a line for every change; with `--json`, each line is the task. While the
    store cannot be reached, it is tried again. The exit code is 0 if the task completed and 1 if it ended otherwise.
    """
    wanted = parse_task_id(task_id)
    with reached(common) as connection:
        engine = connection.inline()
        task = run_inline(engine.get(wanted))
        with _viewer(engine, as_json=common.json) as viewer:
            task = follow(engine, wanted, viewer)
        if on_terminal() and not common.json:
            write(f"{task.id} {line_of(task, None, engine.clock.now())}")
    return 0 if task.state is State.COMPLETED else 1


def follow(
    engine: Facade,
    task_id: TaskId,
    viewer: Viewer,
    *,
    deadline: float = float("inf"),
    pause: Callable[[float], None] = time.sleep,
) -> Task:
    """Show a task until it has ended, or the deadline on the monotonic clock has come; how it then stands.

    A store that cannot be reached is tried again for as long.
    """
    interval = _FIRST_LOOK
    ask_at, why = float("-inf"), None
    lost = False
    while True:
        try:
            task = run_inline(engine.get(task_id))
            if not task.state.waiting:
                why = None
            elif why is None or time.monotonic() >= ask_at:
                began = time.monotonic()
                why = run_inline(engine.explain(task_id))
                ask_at = time.monotonic() + max(_ASK_WHY, _ASK_SELDOM * (time.monotonic() - began))
        except StoreUnavailable as error:
            if time.monotonic() >= deadline:
                raise
            if not lost:
                viewer.trouble(error)
            lost = True
        else:
            if lost:
                viewer.trouble(None)
            lost = False
            viewer.see(task, why)
            if task.state.ended or time.monotonic() >= deadline:
                return task
        pause(max(0.0, min(interval, deadline - time.monotonic())))
        interval = min(interval * 1.5, _LAST_LOOK)


def line_of(task: Task, why: Explanation | None, now: int) -> str:
    """How a task stands, on one line."""
    status = task.status
    words = status.state.value
    if why is not None:
        position = None if why.line is None else why.line.position
        place = "" if position is None else f", number {position:,} in line"
        return f"{words}{place}: {why.causes[0].text}"
    if status.state is State.EXECUTING:
        worker = "" if status.lease is None else f" at {status.lease.worker}"
        words += f", attempt {status.attempts}{worker}"
        if status.progress is not None:
            words += f": {status.progress.percent:g} % {status.progress.message}".rstrip()
        return words
    if status.state is State.SCHEDULED:
        return f"{words}, due {ago(status.ready_at, now)}"
    if status.state.ended:
        took = "" if status.ended_at is None else f" {brief(status.ended_at - task.spec.created_at)} after its submit"
        error = "" if status.failure is None else f": {status.failure.type}: {status.failure.message}"
        return f"{words}{took}{error}"
    return words


@contextlib.contextmanager
def _viewer(engine: Facade, *, as_json: bool) -> Iterator[Viewer]:
    if as_json:
        yield JsonLines(engine)
    elif on_terminal():
        with live(stderr=False) as viewer:
            yield viewer
    else:
        yield Lines()


class Lines:
    """A line for every change; of a wait, whenever its cause changes and now and then otherwise."""

    def __init__(self) -> None:
        self._said = ""
        self._key: object = None
        self._said_at = float("-inf")

    def see(self, task: Task, why: Explanation | None) -> None:
        now = time.time_ns() // 1_000
        line = line_of(task, why, now)
        key = line if why is None else (why.state, why.causes[0].code)
        due = time.monotonic() - self._said_at >= _REPEAT
        if key != self._key or (line != self._said and due):
            self._key, self._said, self._said_at = key, line, time.monotonic()
            write(f"{iso(now)[:19]}Z {one_line(line)}")
            sys.stdout.flush()

    def trouble(self, error: StoreUnavailable | None) -> None:
        warn_of_trouble(error, as_json=False)


class JsonLines:
    """The task as JSON, whenever it has changed."""

    def __init__(self, engine: Facade) -> None:
        self._engine = engine
        self._said: object = None

    def see(self, task: Task, why: Explanation | None) -> None:
        del why
        status = task.status
        said = (status.state, status.attempts, status.progress, status.cancel_asked, status.ready_at)
        if said != self._said:
            self._said = said
            write_json(task_json.brief(task, self._engine))
            sys.stdout.flush()

    def trouble(self, error: StoreUnavailable | None) -> None:
        warn_of_trouble(error, as_json=True)


def warn_of_trouble(error: StoreUnavailable | None, *, as_json: bool) -> None:
    """Say on stderr that the store is lost, or back."""
    text = "the store can be reached again" if error is None else f"{error}; trying again until Ctrl-C"
    warn(text, "store_back" if error is None else "store_unavailable", as_json=as_json)


@contextlib.contextmanager
def live(*, stderr: bool) -> Iterator[Viewer]:
    """A bar that moves, gone when it ends."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    # What tasks say is text, never markup.
    said = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=24), TaskProgressColumn(), TimeElapsedColumn(), said)
    with Progress(*columns, console=console(stderr=stderr), transient=True) as progress:
        yield LiveBar(progress)


class LiveBar:
    """A bar on a terminal: it pulses while the task waits, or says nothing of how far it is."""

    def __init__(self, progress: Progress) -> None:
        progress.add_task("", total=None)
        # Rich's own update cannot take a total away again.
        (self.bar,) = progress.tasks
        self._line = ""

    def see(self, task: Task, why: Explanation | None) -> None:
        self._line = self.bar.description = one_line(line_of(task, why, time.time_ns() // 1_000))
        told = task.status.progress if task.state is State.EXECUTING else None
        self.bar.total, self.bar.completed = (None, 0.0) if told is None else (100.0, told.percent)

    def trouble(self, error: StoreUnavailable | None) -> None:
        lost = "" if error is None else f"the store is out of reach, trying again: {one_line(str(error))}"
        self.bar.description = lost or self._line
