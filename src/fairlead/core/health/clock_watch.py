"""Watching a store's clock: from when on it may be believed that a lease has ended.

A lease has ended when its end is past by the store's clock. That is so for the leases of the living, too, after the
clock was set forward, and while no worker could reach the store. Neither lasts: a living worker renews its lease within
a heartbeat once the store is there. So who has watched the clock for one lease length, and saw it go as time does,
knows that what has not been renewed by then is not going to be.

A process that has just started has seen nothing yet; a machine that slept, a store that was away, a failover to another
server and a clock that was set are a gap or a step. All of them are to watch again.

A process that is held up again and again, as a worker whose event loop its handlers block, is never without a gap. It
believes the clock all the same once it has looked at it often enough and was answered each time: a store is not away
whenever nobody looks, and if nobody else sweeps, the leases of the dead would never be given up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.instant import Instant, Span

_PATIENCE: Final = 4
"""For so many lease lengths a clock is looked at that is never looked at without a gap."""


class LeaseTerms(Struct, frozen=True):
    """By what terms someone holds leases."""

    lease: Span
    heartbeat: Span

    @property
    def to_spare(self) -> Span:
        """How much of a lease is left at least when the next heartbeat is due."""
        return self.lease - self.heartbeat


class ClockReading(Struct, frozen=True, kw_only=True, gc=False):
    """What a clock showed, between two moments of one that is never set."""

    at: Instant
    asked: Span
    answered: Span


class Watch(Struct, frozen=True, kw_only=True):
    """What was seen of one clock."""

    length: Span
    """For how long it is to be watched: one lease."""
    gap: Span
    """How long at most between two looks."""
    tolerance: Span
    """How much it may be off and not have stepped."""
    since: ClockReading | None = None
    """The first look from which on it went as time does, without a gap."""
    last: ClockReading | None = None
    anchor: ClockReading | None = None
    """A look of one lease length ago at most: small steps add up."""
    stepped: Span | None = None
    """When it was seen to have stepped, by the clock that is never set."""
    begun: ClockReading | None = None
    """The first look from which on it went as time does, whatever gaps there were, and was shown at every look."""
    seen: Span = 0
    """For how long since then, if between two looks no more counts than a gap may be."""

    @property
    def from_when(self) -> Instant | None:
        """Since when the clock has been watched, by itself, if that is long enough to believe it; else None."""
        if self.since is not None and self._is_watched:
            return self.since.at
        return None if self.begun is None or self.seen < _PATIENCE * self.length else self.begun.at

    @property
    def _is_watched(self) -> bool:
        """Whether it was watched for long enough without a gap."""
        if self.since is None or self.last is None:
            return False
        return self.last.asked - self.since.answered >= self.length

    @property
    def is_calm(self) -> bool:
        """Whether the clock was not seen to step for one lease length."""
        return self.stepped is None or self.last is None or self.last.asked - self.stepped >= self.length

    def after(self, sight: ClockReading) -> Watch:
        """The watch after one more look."""
        if self.last is None or self.anchor is None:
            return replace(self, since=sight, last=sight, anchor=sight, begun=sight)
        passed = sight.answered - self.last.answered
        if _stepped(self.anchor, sight, self.tolerance):
            anew = replace(self, since=sight, last=sight, anchor=sight, begun=sight)
            return replace(anew, seen=0, stepped=sight.answered)
        if passed > self.gap:
            # What was seen before a gap of its own, or before one that is longer than all of it, says nothing of it.
            fresh = self.begun is None or self._is_watched or passed > _PATIENCE * self.length
            begun, seen = (sight, 0) if fresh else (self.begun, self.seen + self.gap)
            return replace(self, since=sight, last=sight, anchor=sight, begun=begun, seen=seen)
        anchor = sight if sight.asked - self.anchor.answered >= self.length else self.anchor
        begun, seen = (sight, 0) if self.begun is None else (self.begun, self.seen + passed)
        return replace(self, last=sight, anchor=anchor, begun=begun, seen=seen)

    def failed(self) -> Watch:
        """The watch after a look to which there was no answer."""
        return replace(self, begun=None, seen=0)


class Watches(Struct, frozen=True, kw_only=True):
    """What was seen of all clocks that leases go by: one for each run of each server."""

    length: Span
    gap: Span
    tolerance: Span
    each: Mapping[str, Watch] = {}

    @classmethod
    def of(cls, terms: Collection[LeaseTerms]) -> Watches:
        """Watches over leases that are held by these terms, which may differ: as long as the longest of them takes.

        A gap and a step that go unseen leave even the least of them something to spare, also both at once.
        """
        least = min(each.to_spare for each in terms)
        gap = 3 * least // 4
        return cls(length=max(each.lease for each in terms), gap=gap, tolerance=least - gap)

    @property
    def from_when(self) -> Instant | None:
        """Since when all of them have been watched, if that is long enough to believe them; else None."""
        moments = [watch.from_when for watch in self.each.values()]
        known = [moment for moment in moments if moment is not None]
        return max(known) if known and len(known) == len(moments) else None

    @property
    def stepped(self) -> Span | None:
        """When one of them was seen to have stepped last."""
        return max((watch.stepped for watch in self.each.values() if watch.stepped is not None), default=None)

    @property
    def is_calm(self) -> bool:
        """Whether none of them was seen to step for one lease length."""
        return all(watch.is_calm for watch in self.each.values())

    def after(self, sights: Mapping[str, ClockReading]) -> Watches:
        """The watches after one more look. A server that was restarted or has taken over is another one."""
        new = Watch(length=self.length, gap=self.gap, tolerance=self.tolerance)
        return replace(self, each={name: self.each.get(name, new).after(sight) for name, sight in sights.items()})

    def failed(self) -> Watches:
        """The watches after a look to which there was no answer."""
        return replace(self, each={name: watch.failed() for name, watch in self.each.items()})

    def over(self, terms: Collection[LeaseTerms]) -> Watches:
        """What was seen, by those who watch over leases that are held by these terms."""
        now = Watches.of(terms)
        if (now.length, now.gap, now.tolerance) == (self.length, self.gap, self.tolerance):
            return self
        length, gap, tolerance = now.length, now.gap, now.tolerance
        each = {name: replace(watch, length=length, gap=gap, tolerance=tolerance) for name, watch in self.each.items()}
        return replace(now, each=each)


def _stepped(before: ClockReading, now: ClockReading, tolerance: Span) -> bool:
    """Whether more or less has passed by the clock than can have."""
    passed = now.at - before.at
    return not now.asked - before.answered - tolerance <= passed <= now.answered - before.asked + tolerance
