"""How often a caller may ask: token buckets, one for each key and one for each tenant.

They are kept in the memory of one server process, so behind a load balancer a caller has as many allowances as there
are servers. A request costs one token whatever is in it: a batch of a thousand tasks costs as much as one task, and its
size is bounded by the limit on bodies. What workers say is not counted at all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from fairlead.core.instant import SECOND, Span

MOST_BUCKETS: Final = 10_000
"""How many are kept; the one that was used longest ago goes first, and is full when it comes back."""


class Bucket:
    """Holds up to `burst` tokens and gains `rate` of them a second."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: Span) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: Span) -> float:
        """Take a token: 0.0 if there is one; otherwise nothing is taken, and the answer is the seconds until there is.

        `now` is from a monotonic clock.
        """
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate / SECOND)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self.rate

    def give_back(self) -> None:
        """Undo a take."""
        self._tokens = min(self.burst, self._tokens + 1)


class RateLimits:
    """The buckets of one server process."""

    def __init__(self, rate: float, burst: int, most: int = MOST_BUCKETS) -> None:
        """`rate` is in requests a second, 0 for no limit."""
        self._rate = rate
        self._burst = burst
        self._most = most
        self._buckets: OrderedDict[tuple[str, str], Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, tenant: str | None, rate: float | None, now: Span) -> int:
        """Count one request: 0 if it may pass, otherwise the whole seconds, at least one, until it may.

        A key may have a rate of its own. Its tenant is held to the server's, all keys of the tenant together.
        """
        own = self._bucket(("key", key), self._rate if rate is None else rate, now)
        wait = own.take(now) if own is not None else 0.0
        if wait == 0.0 and tenant is not None:
            shared = self._bucket(("tenant", tenant), self._rate, now)
            wait = shared.take(now) if shared is not None else 0.0
            if wait > 0.0 and own is not None:
                # What was refused must not count against the key too.
                own.give_back()
        return max(1, math.ceil(wait)) if wait > 0.0 else 0

    def _bucket(self, whose: tuple[str, str], rate: float, now: Span) -> Bucket | None:
        if rate <= 0:
            return None
        bucket = self._buckets.get(whose)
        if bucket is None or bucket.rate != rate:
            # A second's worth may come at once, however small the burst is.
            bucket = self._buckets[whose] = Bucket(rate, max(self._burst, rate, 1.0), now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(whose)
        return bucket
