"""Rates that all processes of a store keep together: how many tasks each of many submitters has submitted.

What was granted to one submitter is one small record. A process is granted a portion by one compare-and-set, and takes
from that without asking anybody; who is refused is refused for a while without asking either. The rule is in
`fairlead.core.queues.admission`.

The records are of many kinds, by a hash of the submitter, so that reading those of one kind, the only way to read one,
stays cheap with any number of submitters.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from fairlead.core.errors import StoreUnavailable
from fairlead.core.instant import SECOND, Instant
from fairlead.core.queues.admission import PortionGrant, PortionRequest, RateBudget, granted, opens_after, slot_of
from fairlead.core.queues.limits import Rate
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.protocol import Store
from fairlead.storage.values import Record

KINDS: Final = tuple(f"budget_{number:02x}" for number in range(64))
"""The kinds of records that budgets are."""

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(RateBudget).decode
_MOST: Final = 10_000
"""How many submitters a process remembers; the one that it heard of longest ago goes first."""
_TRIES: Final = 100
_FORGOTTEN: Final = 8
"""How many records that count no more are removed when others of their kind are read."""


class Refused(Struct, frozen=True):
    """By which rate a submitter has to wait, and until when."""

    rate: Rate
    until: Instant


class Coming(Struct, frozen=True, gc=False):
    """When some tasks came."""

    at: Instant
    ask: int
    """How often the store had been asked about their submitter by then."""


class Portion:
    """What this process may still use of one rate of one submitter, in one slot."""

    __slots__ = ("ask", "left", "slot", "used")

    def __init__(self, slot: int, left: int, ask: int) -> None:
        self.slot = slot
        self.left = left
        self.ask = ask
        """Which time of asking it was granted at."""
        self.used = 0

    def held(self, rate: Rate, came: Coming) -> int:
        """How much of it may be used for tasks that came then.

        It counts in its slot, so for what came in that slot, or before it was asked for and had to wait for the answer.
        """
        return self.left if self.ask > came.ask or self.slot == slot_of(rate.period, came.at) else 0

    def request(self, rate: Rate, wanted: int, now: Instant) -> PortionRequest:
        """What to ask for: what was used lately is likely to be used once more."""
        if self.slot == slot_of(rate.period, now):
            return PortionRequest(rate, wanted, held=self.left, ahead=self.used)
        ahead = max(self.used - wanted, 0)
        return PortionRequest(rate, wanted, ahead=ahead, unused_slot=self.slot, unused=self.left)


class RateShare:
    """What this process knows of one submitter."""

    def __init__(self, name: str, rates: Sequence[Rate]) -> None:
        digest = hashlib.blake2s(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()
        self.kind = KINDS[int(digest[:2], 16) % len(KINDS)]
        self.name = digest
        self.portions = [Portion(-1, 0, 0) for _ in rates]
        self.asks = 0
        """How often the store was asked about it."""
        self.refused: Refused | None = None
        self.ask_again: Instant = 0
        self.asked: Instant = 0
        self.budget = RateBudget()
        self.version = 0
        self.waiting = 0
        """How many tasks wait until the store has answered."""
        self.lock = asyncio.Lock()


class Taken(Struct):
    """How many of the tasks that somebody wants to submit may be submitted, and why no more."""

    number: int
    refused: Refused | None = None
    portions: Sequence[Portion] = ()

    def give_back(self, number: int = 1) -> None:
        """Undo a part of it: so many were not submitted after all."""
        for portion in self.portions:
            portion.left += number
            portion.used -= number


class SharedRates:
    """The rates of all submitters, as one process keeps them."""

    def __init__(self, store: Store, clock: Clock, rates: Sequence[Rate], most: int = _MOST) -> None:
        self._store = store
        self._clock = clock
        self.rates = tuple(rates)
        self._most = most
        self._shares: OrderedDict[str, RateShare] = OrderedDict()
        self.asked = 0
        """How often the store was asked to grant something."""

    def __len__(self) -> int:
        return len(self._shares)

    async def take(self, name: str, number: int) -> Taken:
        """Count tasks that a submitter of this name submits: as many as it may."""
        share = self._share(name)
        came = Coming(self._clock.now(), share.asks)
        taken = self._take_held(share, number, came)
        if taken is not None:
            return taken
        share.waiting += number
        try:
            async with share.lock:
                # Whoever came before has perhaps been granted enough, or was refused.
                taken = self._take_held(share, number, came)
                if taken is None:
                    await self._ask(share, number)
                    taken = self._take_rest(share, number, came)
                return taken
        finally:
            share.waiting -= number

    def _share(self, name: str) -> RateShare:
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = RateShare(name, self.rates)
            if len(self._shares) > self._most:
                self._shares.popitem(last=False)
        else:
            self._shares.move_to_end(name)
        return share

    def _take_held(self, share: RateShare, number: int, came: Coming) -> Taken | None:
        """Take from what was granted before to tasks that came then; None if the store is to be asked."""
        if share.refused is not None:
            if share.asked <= self._clock.now() < share.ask_again:
                return self._take_rest(share, number, came)
            share.refused = None
        if any(portion.held(rate, came) < number for rate, portion in zip(self.rates, share.portions, strict=True)):
            return None
        return self._taken(share, number)

    def _take_rest(self, share: RateShare, number: int, came: Coming) -> Taken:
        """Take as much as there is."""
        there = min(portion.held(rate, came) for rate, portion in zip(self.rates, share.portions, strict=True))
        taken = self._taken(share, max(0, min(there, number)))
        if taken.number < number:
            taken.refused = share.refused or Refused(self.rates[0], came.at + SECOND)
        return taken

    @staticmethod
    def _taken(share: RateShare, number: int) -> Taken:
        for portion in share.portions:
            portion.left -= number
            portion.used += number
        return Taken(number, portions=tuple(share.portions))

    async def _ask(self, share: RateShare, number: int) -> None:
        """Have the store grant what is missing, and be told what it does not grant."""
        self.asked += 1
        share.asks += 1
        for _ in range(_TRIES):
            now = self._clock.now()
            requests = [
                portion.request(rate, share.waiting, now)
                for rate, portion in zip(self.rates, share.portions, strict=True)
            ]
            budget, grants = granted(share.budget, requests, now)
            if await self._keep(share, budget):
                self._note(share, grants, number, now)
                return
        raise StoreUnavailable(
            f"the count of what this key or tenant submits changed {_TRIES} times meanwhile; try again later"
        )

    async def _keep(self, share: RateShare, budget: RateBudget) -> bool:
        """Store a budget if nobody has changed it since it was read; otherwise read it again."""
        version = await self._store.put(share.kind, share.name, _ENCODE(budget), expected=share.version)
        if version is not None:
            share.budget, share.version = budget, version
            return True
        share.budget, share.version = RateBudget(), 0
        over: list[Record] = []
        for record in await self._store.scan(share.kind):
            if record.name == share.name:
                share.budget, share.version = read_budget(record) or RateBudget(), record.version
            elif (other := read_budget(record)) is None or other.is_over(self._clock.now()):
                over.append(record)
        for record in over[:_FORGOTTEN]:
            await self._store.drop(record.kind, record.name, expected=record.version)
        return False

    def _note(self, share: RateShare, grants: Sequence[PortionGrant], number: int, now: Instant) -> None:
        """Take in what was granted; who is refused is not asked about again for a while."""
        waits: list[Refused] = []
        for at, (rate, grant) in enumerate(zip(self.rates, grants, strict=True)):
            portion = share.portions[at]
            if portion.slot == grant.slot:
                portion.left += grant.granted
                portion.ask = share.asks
            else:
                portion = share.portions[at] = Portion(grant.slot, grant.granted, share.asks)
            if portion.left < number:
                waits.append(Refused(rate, now + opens_after(share.budget, rate, now)))
        share.refused = max(waits, key=lambda each: each.until, default=None)
        if share.refused is not None:
            # Others may give something back before.
            share.asked, share.ask_again = now, min(share.refused.until, now + SECOND)


def read_budget(record: Record) -> RateBudget | None:
    """The budget in a record; None if it cannot be read: then nothing was granted, and it is written anew.

    It says what happened in the last hour and nothing that anybody has decided, so it is not kept in quarantine.
    """
    try:
        return _DECODE(record.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
