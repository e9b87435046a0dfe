"""How the queues stand, as it is shown: made once for all who ask at the same time."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from fairlead.admin.stats import standing
from fairlead.engine.queue_ages import QueueAges
from fairlead.engine.stats import Stats, aged

_ENCODE: Final = msgspec.json.Encoder().encode


class _Shown(Struct, frozen=True):
    """What was shown, and what it was made of."""

    stats: Stats
    ages: QueueAges | None
    queue: str | None
    answer: Raw


class StatsAnswers:
    """Shows how the queues stand.

    Those who ask while the tasks are counted are told of the same count, so they have the same answer. A caller who is
    bound to a tenant has stats of its own, and what is made of them is shown to nobody else.
    """

    def __init__(self) -> None:
        self._last: _Shown | None = None

    def show(self, stats: Stats, ages: QueueAges | None, queue: str | None) -> Raw:
        """The stats of all queues or of one, with these ages of their tasks, as JSON."""
        last = self._last
        if last is not None and last.stats is stats and last.ages is ages and last.queue == queue:
            return last.answer
        shown = standing(stats if ages is None else aged(stats, ages), queue)
        self._last = _Shown(stats, ages, queue, Raw(_ENCODE(shown)))
        return self._last.answer
