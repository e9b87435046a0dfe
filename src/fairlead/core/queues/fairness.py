"""Fairness: turns, by which the keys of a line share it.

A line is the waiting tasks of one queue and priority. Each task that has a fair key gets a turn in the step that queues
it: one step behind the turn that its key was given last, and not before what its line has reached. The least turn is
served next. So a key that has queued a million tasks has turns far ahead, and one that comes with its first is served
within a round, whoever was there before.

    reached   the greatest turn that was served in the line, by its turn and not by its age
    last      the turn that a key was given last, while it has waiting tasks; then the key is forgotten
    others    the turn of all tasks together that have no fair key, the oldest of which is served at it

Without fair tasks that wait, nothing is kept of a line. Turns are numbers below 2^53, as scores of Redis are exact up
to there: at weight 1 a line would have to be served a million million times without ever being empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import Forbidden, InvalidSettings
from fairlead.core.task import Fair, Spec, State, Status, Task
from fairlead.core.validation import TEXT_LIMIT, bad_setting, check_text, check_type, is_unicode, shown

STEP: Final = 5_040
"""How far apart turns of weight 1 are: divisible by all whole weights up to 10."""
TENANT: Final = "tenant"
_SHARED_BY: Final = "use tenant, type, tag:NAME or parameter:NAME"
LEAST_WEIGHT: Final = 0.01
MOST_WEIGHT: Final = 100


class LineTurns(Struct, frozen=True, array_like=True, gc=False):
    """How far the turns of a line have come."""

    reached: int = 0
    """The greatest turn that was served by its turn."""
    others: int = 0
    """The turn of the oldest task without a fair key; 0 until one was met beside fair ones."""

    @property
    def turn_of_others(self) -> int:
        """The turn that the oldest task without a fair key has now."""
        return self.others or self.reached + STEP


class FairRule(Struct, frozen=True):
    """How the tasks of a queue share it: by what, and with which weights."""

    by: str
    """`tenant`, `type`, `tag:NAME` for what follows `NAME:` in a tag, or `parameter:NAME` for what that one is."""
    weights: dict[str, float] = {}
    """By fair key: how many turns it has for each one of a key with weight 1."""
    weight: float = 1
    """Of the keys that are not named."""

    def fair(self, spec: Spec, chosen: str | None) -> Fair | None:
        """Whose turns a task of the queue takes: those of the key that its submitter chose, or that the rule finds."""
        if spec.concurrency_key is not None:
            return None
        key = self._key_of(spec) if chosen is None else chosen
        return None if key is None else Fair(key, step_of(self.weights.get(key, self.weight)))

    def check_bound(self, queue: str, tenant: str | None, chosen: str | None) -> None:
        """Refuse a submitter who is bound to a tenant what would let it make up fair keys, one for each task."""
        if chosen is not None and chosen != tenant:
            raise Forbidden(
                "a key that is bound to a tenant chooses no fair key", "leave it out", "fair_key", chosen[:64]
            )
        if self.by != TENANT:
            raise Forbidden(
                f"queue {queue!r} is shared by {self.by}, which whoever submits can choose, and this key is bound to a "
                f"tenant",
                "use a queue that is shared by tenant",
                "queue",
                queue[:64],
            )

    def _key_of(self, spec: Spec) -> str | None:
        kind, _, name = self.by.partition(":")
        if kind == TENANT:
            return spec.tenant
        if kind == "type":
            return spec.type
        if kind == "tag":
            found = next((tag for tag in spec.tags if tag.startswith(f"{name}:")), None)
            return None if found is None else found[len(name) + 1 :] or None
        return _text_of(msgspec.json.decode(spec.parameters).get(name))


def check_fair(name: str, value: object) -> str:
    """What the tasks of a queue share it by."""
    kind, _, rest = check_type(name, value, str, _SHARED_BY, bad_setting).partition(":")
    if (kind in (TENANT, "type") and value == kind) or (kind in ("tag", "parameter") and rest):
        return check_text(name, value, refuse=bad_setting)
    raise InvalidSettings(f"{name} {shown(value)} is nothing to share a queue by; {_SHARED_BY}")


def _text_of(value: object) -> str | None:
    """A parameter as a fair key; None for what is none, such as an object or an empty text."""
    text = str(value).lower() if isinstance(value, bool | int | float) else value
    if not isinstance(text, str) or not text:
        return None
    if len(text) <= TEXT_LIMIT and is_unicode(text):
        return text
    # Only where somebody sends values of any length, and then it is to stay small.
    import hashlib

    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).hexdigest()


def step_of(weight: float) -> int:
    """How far apart the turns of a key with this weight are."""
    return round(STEP / weight)


def check_weight(name: str, value: object) -> float:
    """A weight: how many turns a key has for each one of a key with weight 1."""
    if type(value) not in (int, float) or not LEAST_WEIGHT <= value <= MOST_WEIGHT:  # type: ignore[operator]
        raise InvalidSettings(
            f"{name} {shown(value)} is not a weight; use a number from {LEAST_WEIGHT} to {MOST_WEIGHT}"
        )
    return value  # type: ignore[return-value]


def entry_turn(reached: int, last: int, step: int) -> int:
    """The turn of a task that is queued: `last` is what its key was given last, 0 if none of it waits."""
    return max(reached, last) + step


def return_turn(own: int, reached: int, step: int) -> int:
    """The turn of a task that is queued again and was not served, such as one that was handed back."""
    return min(own, reached + step)


def queue_turn(own: int, reached: int, last: int, step: int) -> int:
    """The turn of a task that comes to be queued: `own` is 0 unless it keeps the one it had."""
    return return_turn(own, reached, step) if own else entry_turn(reached, last, step)


def comes_to_be_queued(before: Status | None, after: Status | None) -> bool:
    """Whether a task comes into a line by standing like this; the other way round, whether it leaves the one it was in.

    One that stays in its line keeps its turn, whatever is said.
    """
    if after is None or after.state is not State.QUEUED:
        return False
    return before is None or before.state is not State.QUEUED or before.priority != after.priority


def after_fair(line: LineTurns, turn: int, *, others_wait: bool) -> LineTurns:
    """The line once a task with this turn was served by it; `others_wait` beside it, who have no fair key."""
    others = line.turn_of_others if others_wait else line.others
    return replace(line, reached=max(line.reached, turn), others=others)


def after_others(line: LineTurns, *, fair_wait: bool) -> LineTurns:
    """The line once its oldest task without a fair key was served at the turn of those; `fair_wait` beside it."""
    if not fair_wait:
        return line  # As long as nobody takes turns with them, nobody counts theirs.
    reached = max(line.reached, line.turn_of_others)
    return LineTurns(reached, reached + STEP)


def others_before(line: LineTurns, turn: int, waiting: int) -> int:
    """How many of so many tasks without a fair key are served before a task with this turn, if none comes or goes.

    The first of them is at `turn_of_others`, and each is one step behind the one before it. Of one at the same turn the
    id decides; it is not counted.
    """
    return max(0, min(waiting, -(-(turn - line.turn_of_others) // STEP)))


def places(ahead: int, promoted_behind: int, due: int) -> tuple[int, int]:
    """From which to which place a task is served by its turn, with so many before it by priority and turn.

    Of so many promoted tasks behind it each may take a turn of the promoted, which is every one after `due` others.
    """
    return ahead + 1, ahead + 1 + min(promoted_behind, ahead // due + 1)


def latest_place_by_age(older: int, due: int, claimers: int) -> int:
    """By which place a promoted task is served, with so many promoted ones that come before it by their age."""
    return (due + 1) * (older + 1) + due * max(0, claimers - 1)


def key_share(weight: float, others: Iterable[float]) -> float:
    """The part of a line's turns that a key of this weight has beside keys of other weights."""
    return weight / (weight + sum(others))


def next_by_turn(waiting: Sequence[Task], line: LineTurns) -> tuple[Task, LineTurns]:
    """Which of the tasks of a line is served by its turn, and the line then: slow and obvious.

    All of them are such as may be taken; there is at least one.
    """
    fair = min((task for task in waiting if task.spec.takes_turns), key=_by_turn, default=None)
    others = min((task for task in waiting if not task.spec.takes_turns), key=_by_age, default=None)
    if others is None or (fair is not None and _by_turn(fair) < (line.turn_of_others, others.id)):
        assert fair is not None  # noqa: S101 - there is at least one
        return fair, after_fair(line, fair.status.turn, others_wait=others is not None)
    return others, after_others(line, fair_wait=fair is not None)


def _by_turn(task: Task) -> tuple[int, str]:
    return task.status.turn, task.id


def _by_age(task: Task) -> tuple[int, str]:
    return task.status.ready_at, task.id
