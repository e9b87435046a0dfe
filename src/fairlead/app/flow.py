"""Chains and groups: calls that run one after the other, or side by side with one that runs when all have ended.

A flow is submitted as one batch, in which a task names those it waits for by their position. How many those are is
fixed when the task is stored, so what comes later can neither run early nor be forgotten, whatever fails meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

from msgspec.structs import replace

from fairlead.app.handle import TaskHandle
from fairlead.app.task_type import Call
from fairlead.core.errors import FairleadError, InvalidTask
from fairlead.core.submission import Submission
from fairlead.core.validation import shown
from fairlead.engine.engine import Submitted
from fairlead.engine.runtime.inline import run_inline

R = TypeVar("R")

_CALL: Final = "task.call(…)"

Step: TypeAlias = "Call[Any] | Chain[Any] | Group"
"""What a flow is made of: calls, and flows of their own."""


class Flow(Generic[R]):
    """The tasks of a flow that was submitted."""

    def __init__(self, tasks: Sequence[TaskHandle[Any]], last: TaskHandle[R]) -> None:
        self.tasks = list(tasks)
        """All tasks, in the order they were named."""
        self.last = last
        """The task that runs when all others have ended."""

    def __repr__(self) -> str:
        return f"<flow of {len(self.tasks)} tasks, last {self.last!r}>"


class Group:
    """Steps that run side by side, to be followed by another in a chain."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = _steps_of("group", steps, Group)
        if not self.steps:
            raise InvalidTask("group", "the group has no calls; give it at least one")


class Chain(Generic[R]):
    """Steps that run one after the other: each when all of the one before it have ended."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = _steps_of("chain", steps, Chain)
        if not self.steps or isinstance(self.steps[-1], Group):
            raise InvalidTask("chain", "the chain does not end with a call; add one that runs when all else has ended")

    async def submit(self) -> Flow[R]:
        """Submit all calls at once; they are stored when this returns. Raises the first refusal."""
        calls, submissions = _laid_out(self)
        return _flow(calls, await (await calls[0].definition.link.engine()).submit_many(submissions))

    def submit_sync(self) -> Flow[R]:
        """`submit`, from synchronous code."""
        calls, submissions = _laid_out(self)
        return _flow(calls, run_inline(calls[0].definition.link.inline().submit_many(submissions)))


@overload
def chain(last: Call[R] | Chain[R], /) -> Chain[R]: ...
@overload
def chain(first: Step, last: Call[R] | Chain[R], /) -> Chain[R]: ...
@overload
def chain(first: Step, second: Step, last: Call[R] | Chain[R], /) -> Chain[R]: ...
@overload
def chain(*steps: Step) -> Chain[Any]: ...


def chain(*steps: Step) -> Chain[Any]:
    """Calls that run one after the other: `await chain(a.call(1), b.call()).submit()`.

    A step may be a group: the next one then runs when all of the group have ended. After a failure the rest is
    cancelled, except calls with the option `on_failure="run_anyway"`.
    """
    return Chain(steps)


@overload
def group(calls: Iterable[Step], *, callback: Call[R]) -> Chain[R]: ...
@overload
def group(calls: Iterable[Step], *, callback: None = None) -> Group: ...


def group(calls: Iterable[Step], *, callback: Call[Any] | None = None) -> Chain[Any] | Group:
    """Calls that run side by side, and a callback that runs once when all have ended.

    Without a callback it is a step of a chain.
    """
    steps = Group(calls)
    return steps if callback is None else Chain([steps, callback])


def _steps_of(flow: str, said: object, kind: type[Group | Chain[Any]]) -> tuple[Step, ...]:
    """The steps of a flow; those of a flow of its own kind in it are its own, so that no loop can nest it too deep."""
    if isinstance(said, str) or not isinstance(said, Iterable):
        raise InvalidTask(flow, f"{flow} {shown(said)} is not a list; write a list of calls, each made with {_CALL}")
    steps: list[Step] = []
    for step in said:
        if not isinstance(step, Call | Chain | Group):
            raise InvalidTask(flow, f"{flow} has the step {shown(step)}, which is not a call; make it with {_CALL}")
        steps += step.steps if isinstance(step, kind) else (step,)
    return tuple(steps)


def _laid_out(flow: Step) -> tuple[list[Call[Any]], list[Submission]]:
    """The calls of a flow, and their submissions as one batch."""
    calls: list[Call[Any]] = []
    submissions: list[Submission] = []

    def lay_out(step: Step, after: tuple[int, ...]) -> tuple[int, ...]:
        """Add a step that waits for these positions; the positions at its end."""
        match step:
            case Chain(steps=steps):
                for one in steps:
                    after = lay_out(one, after)
                return after
            case Group(steps=steps):
                return tuple(position for one in steps for position in lay_out(one, after))
            case Call():
                calls.append(step)
                submission = step.submitted
                submissions.append(replace(submission, after=(*submission.after, *after)))
                return (len(calls) - 1,)

    lay_out(flow, ())
    return calls, submissions


def _flow(calls: Sequence[Call[Any]], answers: Sequence[Submitted | FairleadError]) -> Flow[Any]:
    handles: list[TaskHandle[Any]] = []
    for call, answer in zip(calls, answers, strict=True):
        if isinstance(answer, FairleadError):
            raise answer
        handles.append(call.definition.held(answer))
    return Flow(handles, handles[-1])
