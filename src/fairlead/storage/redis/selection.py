"""Which lanes a claim may take from, as scripts are told.

A claim names its selection by a digest: of a queue with many lanes the server keeps a view for each selection, and what
is too much to be sent with every claim, it keeps as a set by that name (see views.lua and select.lua).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Word
from fairlead.storage.redis.keys import encode
from fairlead.storage.values import Claim

MOST_SENT: Final = 64
"""Types that are sent with each claim, at most."""
_LIFE: Final = 3_600_000
"""Milliseconds for which a set is kept; a view that is made keeps it for as long again."""
_PIECE: Final = 1_000
"""Members per call."""
_KEPT: Final = 100

Which: TypeAlias = tuple[frozenset[str], frozenset[str] | None, frozenset[str]]


class Selection(Struct, frozen=True):
    """Capabilities, types and excluded types, as claims send them."""

    words: tuple[Word, ...]
    name: str
    members: Sequence[str]
    """Of the set that the server is to have; empty if all is sent."""


class Selections:
    """The selections of the claims that a process makes: they are mostly the same."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[Which, Selection] = {}

    def of(self, claim: Claim) -> Selection:
        """The selection of a claim."""
        which = claim.capabilities, claim.types, claim.excluded_types
        selection = self._known.get(which)
        if selection is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            selection = self._known[which] = _selection(*which)
        return selection

    async def send(self, base: bytes, claim: Claim) -> None:
        """Have the server know the set of a claim's selection, in the slot of the claim's first queue."""
        selection = self.of(claim)
        key = base + b"s" + selection.name.encode()
        for first in range(0, len(selection.members), _PIECE):
            call = Call(key, (_LIFE, *selection.members[first : first + _PIECE]), scripts.SELECT)
            await self._client.run_one(call, repeatable=True)


def _selection(capabilities: frozenset[str], types: frozenset[str] | None, excluded: frozenset[str]) -> Selection:
    what = encode((sorted(capabilities), None if types is None else sorted(types), sorted(excluded)))
    name = base64.urlsafe_b64encode(hashlib.blake2b(what, digest_size=9).digest()).decode()
    own = encode(sorted(capabilities))
    if len(types or ()) + len(excluded) <= MOST_SENT:
        words = (own, b"" if types is None else encode(sorted(types)), encode(sorted(excluded)), name, "")
        return Selection(words, name, ())
    marks = ("" if types is None else "+") + "-"
    # The last one says that all are there.
    members = [*(f"+{each}" for each in types or ()), *(f"-{each}" for each in excluded), "!"]
    return Selection((own, b"", encode([]), name, marks), name, members)
