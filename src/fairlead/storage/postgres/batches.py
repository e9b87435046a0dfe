"""Splitting a batch so that no statement touches the same thing twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def rounds(things: Sequence[Hashable]) -> list[list[int]]:
    """The places of the things, in as few lists as can be: within one no thing comes twice, and they keep their order.

    A statement changes a row at most once; what a batch says about one task several times takes effect in turn.
    """
    if len(set(things)) == len(things):
        return [list(range(len(things)))] if things else []
    turns: dict[Hashable, int] = {}
    split: list[list[int]] = []
    for place, thing in enumerate(things):
        turn = turns.get(thing, 0)
        turns[thing] = turn + 1
        if turn == len(split):
            split.append([])
        split[turn].append(place)
    return split
