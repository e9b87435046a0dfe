"""Whether the hot store is the one that the journal is of, and has lost nothing.

The journal holds a mark, and the hot store and each of its slots that was ever used bear it. So a store that was
emptied bears none, one that lost a node of its Cluster bears it in parts, and one that was replaced by a rebuild
elsewhere, or that a wrong URL leads to, bears an older one or a stranger's.

A store that bears none makes up a name for itself before the journal is told to take it. So of many processes that see
one empty store all name the same, and of many empty stores the journal takes one.

A slot whose tasks are being put back bears a partial mark. It is listed before the first of them is there, and gets the
mark only in place of the partial one. So what is lost while a store is rebuilt is missed at the end.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Collection, Mapping
from typing import Final
from uuid import uuid4

from fairlead.core.errors import StoreError, StoreMismatch
from fairlead.core.task import State
from fairlead.storage.deadline import Budget, timed
from fairlead.storage.journal.availability import PAUSE
from fairlead.storage.journal.journal import FIRST_ID, Journal, Mark, candidate, name_of_candidate
from fairlead.storage.journal.outbox import ROOT, HotStore
from fairlead.storage.values import Filter

log = logging.getLogger("fairlead.store")

EVERY: Final = 1.0
"""Seconds after which a process that uses the store looks again."""
_PATIENCE: Final = 1.0
"""Seconds that a look may take: all else goes on meanwhile, but for who looks."""
_AT_ONCE: Final = 256
"""How many slots are looked at; of more, others with each look."""
_LIVE: Final = Filter(states=frozenset({State.EXECUTING, State.QUEUED, State.SCHEDULED}))
_LOOKED_AT: Final = 100
"""Of how many tasks it is asked whose they are: the oldest and the newest here, the oldest in each state there."""


class Condition(enum.Enum):
    """What a hot store is to its journal."""

    WHOLE = "whole"
    NEW = "new"
    """No hot store was ever marked, so this one becomes the journal's: as a journal is begun, or after an upgrade."""
    UNPROVEN = "unproven"
    """No hot store was ever marked, and this one has none of the tasks that the journal takes to be in one. It was
    lost, or is another one: then the right one bears no mark either by which it could be refused later."""
    TAKEN = "taken"
    """The journal has just taken it, and it is yet to bear the mark."""
    REBUILDING = "rebuilding"
    EMPTY = "empty"
    """It has lost everything, or is another one."""
    STRANGE = "strange"
    """It bears no mark, but has tasks that the journal knows nothing of: it is another's, and must not be used."""
    TORN = "torn"
    """It has lost a part."""
    FOREIGN = "foreign"
    """It is not the current one, and must not be used."""


_REFUSED: Final = frozenset({Condition.FOREIGN, Condition.STRANGE, Condition.UNPROVEN})
"""What must not be used, or tasks would be run twice."""


def condition_of(mark: Mark, borne: Mapping[int, str | None]) -> Condition:
    """What the hot store is, by the mark in the journal and by what it and its slots bear."""
    root = borne[ROOT]
    slots = [text for slot, text in borne.items() if slot != ROOT]
    if mark.number and root == mark.candidate:
        return Condition.TAKEN
    if root is None or name_of_candidate(root) is not None:
        if any(text in (mark.text, mark.partial) for text in slots) and not mark.whole:
            return Condition.REBUILDING
        if any(text is not None for text in slots):
            return Condition.TORN
        return Condition.EMPTY if mark.number else Condition.NEW
    if root != mark.text:
        return Condition.FOREIGN
    if not mark.whole:
        return Condition.REBUILDING
    return Condition.TORN if any(text != root for text in slots) else Condition.WHOLE


class Incarnation:
    """What one process knows of it; it looks again as it goes."""

    def __init__(self, hot: HotStore, journal: Journal) -> None:
        self._hot = hot
        self._journal = journal
        self.budget = Budget(_PATIENCE, journal.address.database.shown, blocking=journal.blocking)
        self.condition: Condition | None = None
        """None before the first look."""
        self.mark: Mark | None = None
        self._borne: str | None = None
        self._covered: set[int] = set()
        """The slots that this process knows to bear the mark."""
        self._turn = 0
        self.due = 0.0
        """When to look again, by the monotonic clock."""

    @property
    def text(self) -> str | None:
        """What a slot must bear that takes an idempotency key; None if that is not known."""
        return None if self.mark is None else self.mark.text

    @property
    def intact(self) -> bool:
        """Whether nothing is lost, as far as is known."""
        return self.condition in (None, Condition.WHOLE)

    async def admit(self) -> None:
        """Look, if that is due; raises StoreMismatch for a store that must not be used."""
        if time.monotonic() >= self.due and not self._journal.reach.doubtful:
            await self.refresh()
        self._check()

    async def prove(self) -> None:
        """See to it that the journal has marked a store, and that it is this one, before anything is written there."""
        if self.mark is None and not (await self._journal.mark()).number:
            await self.look()
            self._check()

    async def refresh(self) -> None:
        """Look now, if the journal can be reached. Who comes meanwhile goes on with what was known, if anything was."""
        if self.mark is not None:
            self.due = time.monotonic() + EVERY
        try:
            await self.look()
        except StoreError:
            # Whoever needs the journal, or the hot store, meets the same error and reports it.
            self.due = time.monotonic() + PAUSE
        else:
            self.due = time.monotonic() + EVERY

    @timed
    async def look(self) -> Condition:
        """Compare what the journal and the hot store say."""
        mark = await self._journal.mark()
        borne = await self._hot.marks([ROOT, *self._some(mark.slots)])
        if borne[ROOT] is None and len(mark.slots) > _AT_ONCE:
            borne = await self._hot.marks([ROOT, *mark.slots])
        condition = condition_of(mark, borne)
        match condition:
            case Condition.NEW if await self._has_none():
                condition = Condition.UNPROVEN
            case Condition.NEW:
                await self._offer(mark, borne[ROOT], whole=True)
                return await self.look()
            case Condition.TAKEN:
                await self._brand(mark)
                return await self.look()
            case Condition.EMPTY if await self._has_others():
                condition = Condition.STRANGE
        if condition in _REFUSED and (await self._journal.mark()).text != mark.text:
            # Another process marked a store between the questions, and may have written tasks by now.
            return await self.look()
        if self.mark is None or mark.text != self.mark.text or condition is not self.condition:
            self._covered.clear()
        self.mark, self._borne = mark, borne[ROOT]
        self._learn(condition)
        return condition

    async def cover(self, slots: Collection[int]) -> None:
        """See to it that slots which are used for the first time bear the mark.

        One that was used before and bears none any more is lost, and stays without.
        """
        new = [slot for slot in slots if slot not in self._covered]
        if not new or self.mark is None or self.condition not in (Condition.WHOLE, Condition.REBUILDING):
            return
        mark = self.mark
        text = mark.text if self.condition is Condition.WHOLE else mark.partial
        borne = await self._hot.marks([ROOT, *new])
        if borne[ROOT] != mark.text:
            self.due = 0.0
            return
        bare = [slot for slot in new if borne[slot] is None]
        if bare:
            known = set((await self._journal.mark()).slots)
            await self._hot.put_mark(text, [slot for slot in bare if slot not in known], over=None)
            borne |= await self._hot.marks(bare)
        marked = [slot for slot in new if borne[slot] == text]
        await self._journal.list_marked(mark.number, marked)
        self._covered.update(marked)
        if text == mark.partial and (await self._journal.mark()).whole:
            # The rebuild has come to its end, and may have listed what it has to mark before these were.
            await self._hot.put_mark(mark.text, marked, over=text)

    def told(self) -> str:
        """What is wrong, and what to do about it."""
        journal = self._journal.address.database.shown
        match self.condition:
            case Condition.EMPTY:
                return (
                    f"the hot store has lost everything that {journal} knows of; it is rebuilt by a worker that may, "
                    f"or by `fairlead rebuild`. Until then what it had does not run"
                )
            case Condition.REBUILDING:
                return f"the hot store was lost and is being rebuilt from {journal}; idempotency keys wait for that"
            case Condition.TORN:
                return (
                    f"a part of the hot store has lost what {journal} knows of, as when a node of a Cluster comes back "
                    f"empty; put it back with `fairlead rebuild`"
                )
            case Condition.FOREIGN:
                return (
                    f"the hot store bears the mark {self._borne}, and {journal} is of {self.text}: another store was "
                    f"rebuilt since, or one of the two URLs is wrong. Correct it, or empty this store, and it is "
                    f"rebuilt"
                )
            case Condition.STRANGE:
                return (
                    f"the hot store bears no mark and has tasks that {journal} knows nothing of, so it is another's; "
                    f"correct the URL of one of the two, or have `fairlead rebuild` take this store, tasks and all"
                )
            case Condition.UNPROVEN:
                return (
                    f"the hot store has none of the tasks that {journal} has, and bears no mark, as none ever did: it "
                    f"was lost, or one of the two URLs is wrong. Correct it, or have `fairlead rebuild` fill this one"
                )
            case _:
                return "the hot store has all that the journal knows of"

    async def begin_rebuild(self) -> Mark:
        """Have the hot store bear a mark under which it is rebuilt: a new one if it has lost everything.

        So a store that still bears the older one, wherever it is, is used by nobody from then on. Raises StoreMismatch
        for one that must not be used.
        """
        while True:
            await self.look()
            mark, root = self.mark, self._borne
            if self.condition is Condition.FOREIGN:
                raise StoreMismatch(self.told())
            if mark is None:
                raise AssertionError("what was looked at has a mark")
            if self.condition in (Condition.EMPTY, Condition.STRANGE, Condition.UNPROVEN):
                # Whoever asks for it by hand may know better whose tasks those are.
                await self._offer(mark, root, whole=False)
            elif root == mark.text or ROOT in await self._hot.put_mark(mark.text, [ROOT], over=root):
                return mark

    async def open_slots(self, mark: Mark, slots: Collection[int]) -> None:
        """Have slots that do not bear the mark bear the partial one, for their tasks are about to be put back."""
        borne = await self._hot.marks(slots)
        for text in set(borne.values()) - {mark.text, mark.partial}:
            await self._hot.put_mark(mark.partial, [slot for slot in slots if borne[slot] == text], over=text)
        await self._journal.list_marked(mark.number, sorted(slots))

    async def end_rebuild(self, mark: Mark) -> bool:
        """Have the hot store be whole; False if some of what was put back was lost since."""
        unlisted = (await self._hot.slots()).difference((await self._journal.mark()).slots)
        if unlisted:
            await self.open_slots(mark, unlisted)
        if not await self._close_slots(mark):
            return False
        await self._journal.make_whole(mark.number)
        # Those, too, that someone has begun to use meanwhile.
        is_whole = await self._close_slots(mark)
        await self.refresh()
        return is_whole

    async def _close_slots(self, mark: Mark) -> bool:
        """Have all slots bear the mark in place of the partial one; whether all do, and the store itself."""
        current = await self._journal.mark()
        if current.text != mark.text:
            return False
        marked = await self._hot.put_mark(mark.text, current.slots, over=mark.partial)
        root = (await self._hot.marks([ROOT]))[ROOT]
        return root == mark.text and marked.issuperset(current.slots)

    async def _offer(self, mark: Mark, borne: str | None, *, whole: bool) -> None:
        """Offer this store to the journal in place of the one that had this mark, under a name of its own."""
        if borne is None:
            await self._hot.put_mark(candidate(uuid4().hex), [ROOT], over=None)
            borne = (await self._hot.marks([ROOT]))[ROOT]
        name = name_of_candidate(borne or "")
        if name is not None:
            await self._journal.move_mark(mark.number, name, whole=whole)

    async def _brand(self, mark: Mark) -> None:
        """Have a store that the journal has taken bear the mark, after its slots, if it has all that there is."""
        if mark.whole:
            slots = sorted(await self._hot.slots())
            marked = await self._hot.put_mark(mark.text, slots, over=None)
            await self._journal.list_marked(mark.number, sorted(marked))
        await self._hot.put_mark(mark.text, [ROOT], over=mark.candidate)

    async def _has_others(self) -> bool:
        """Whether a store that bears no mark has tasks that the journal knows nothing of, nor is about to hear of."""
        pages = [await self._hot.find(_LIVE, limit=_LOOKED_AT, newest_first=newest) for newest in (True, False)]
        ids = {task.id for page in pages for task in page}
        # What is carried to the journal meanwhile is known by the time that it is asked.
        if not ids or await self._hot.size():
            return False
        return len(await self._journal.versions(sorted(ids))) < len(ids)

    async def _has_none(self) -> bool:
        """Whether the journal has tasks that are to be in a hot store, and this one has none of them."""
        pages = [await self._journal.live(state, (0, FIRST_ID), _LOOKED_AT) for state in sorted(_LIVE.states)]
        ids = [task.id for page in pages for task in page.tasks]
        return bool(ids) and not any(await self._hot.get(ids))

    def _check(self) -> None:
        if self.condition in _REFUSED:
            raise StoreMismatch(self.told())

    def _some(self, slots: tuple[int, ...]) -> tuple[int, ...]:
        if len(slots) <= _AT_ONCE:
            return slots
        self._turn = (self._turn + _AT_ONCE) % len(slots)
        return (slots + slots)[self._turn : self._turn + _AT_ONCE]

    def _learn(self, condition: Condition) -> None:
        before, self.condition = self.condition, condition
        if condition is before or (before is None and self.intact):
            return
        if self.intact:
            log.warning("%s again", self.told())
        else:
            log.error("%s", self.told())
