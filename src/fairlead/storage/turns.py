"""Claims of lines that fair keys share, where nobody's age has a say: they are served turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fairlead.core.queues.fairness import LineTurns, after_fair, after_others
from fairlead.core.queues.order import rank_after
from fairlead.core.task import Priority
from fairlead.storage.fair_line import FairEntries
from fairlead.storage.lane_merge import Head
from fairlead.storage.lane_search import Entry, Front, LineFronts
from fairlead.storage.values import Claim


def serve_in_turn(
    claim: Claim,
    others: Mapping[Priority, Iterator[Entry]],
    open_entry: Callable[[Entry], Front | None],
    fair: Mapping[Priority, FairEntries],
) -> tuple[list[Head], dict[tuple[str, Priority], LineTurns]] | None:
    """What a claim of one queue takes where nobody's age has a say, and how far turns have come; None where it has.

    Then the most urgent priority is served until nothing is left of it, and nobody need ask whose task is the oldest.
    The claim is under no limits. Where the answer is None, nothing was taken.
    """
    (order,) = claim.queues
    table = order.tables[0]
    plain = {priority: LineFronts(each, open_entry) for priority, each in others.items()}
    priorities = sorted(plain.keys() | fair.keys(), key=lambda priority: table[priority].rank)
    if len(order.tables) > 1 or len({table[priority].rank for priority in priorities}) < len(priorities):
        return None
    for priority in priorities:
        line, entries = table[priority], fair.get(priority)
        oldest = min(
            (front.head[0] for front in _first_fronts(plain.get(priority), entries) if front.head is not None),
            default=claim.at,
        )
        if line.head_start or rank_after(line, claim.at - oldest) < line.rank:
            return None
    taken: list[Head] = []
    reached: dict[tuple[str, Priority], LineTurns] = {}
    for priority in priorities:
        line_of_others, entries = plain.get(priority) or LineFronts(iter(()), open_entry), fair.get(priority)
        by_turn = LineFronts(iter(()) if entries is None else entries.by_turn, open_entry)
        turns = LineTurns() if entries is None else entries.turns
        reached[order.queue, priority] = _take_in_turn(line_of_others, by_turn, turns, taken, claim.limit)
    return taken, reached


def _first_fronts(others: LineFronts | None, entries: FairEntries | None) -> list[Front]:
    """The lanes of one line of which one has its oldest task."""
    other = None if others is None else others.best()
    first = None if entries is None else next(entries.by_age, None)
    return [front for front in (other, None if first is None else first[2]) if front is not None]


def _take_in_turn(
    others: LineFronts, by_turn: LineFronts, turns: LineTurns, taken: list[Head], limit: int
) -> LineTurns:
    """Take heads of one line by turn until so many are taken; how far its turns have come then."""
    other, fair = others.best(), by_turn.best()
    while len(taken) < limit and (fair is not None or other is not None):
        if fair is None or (other is not None and _is_before(other, turns.turn_of_others, fair)):
            assert other is not None and other.head is not None  # noqa: S101 - or the loop had ended
            turns = after_others(turns, fair_wait=fair is not None)
            taken.append(other.head)
            other.take()
            others.moved()
            other = others.best()
        else:
            head = fair.head
            assert head is not None  # noqa: S101 - a front without a head is in no line
            turns = after_fair(turns, head[0], others_wait=other is not None)
            taken.append(head)
            fair.take()
            by_turn.moved()
            fair = by_turn.best()
    return turns


def _is_before(other: Front, turn: int, fair: Front) -> bool:
    """Whether the oldest task without a fair key has its turn before the fair task whose turn it is."""
    return other.head is not None and fair.head is not None and (turn, other.head[1]) < (fair.head[0], fair.head[1])
