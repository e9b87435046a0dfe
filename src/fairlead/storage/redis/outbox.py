"""A Redis store that notes what it changes, for a journal behind it. See `fairlead.storage.journal.outbox`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fairlead.core.identity import TaskId, slot_of_id
from fairlead.core.instant import MILLISECOND, Instant, Span
from fairlead.core.task import State, Task
from fairlead.storage.credentials import Credentials, with_credentials
from fairlead.storage.deadline import timed_store
from fairlead.storage.journal.outbox import HIDDEN, ROOT, Done, Note
from fairlead.storage.redis import scripts
from fairlead.storage.redis.change import change_entries, entry_of
from fairlead.storage.redis.client.calls import Call
from fairlead.storage.redis.client.resp import Word
from fairlead.storage.redis.keys import id_bytes, id_text
from fairlead.storage.redis.store import RedisStore
from fairlead.storage.redis.url import parse_address
from fairlead.storage.values import Change, Receipt, Verdict

_REMOVED: Final = b"-"
_PIECE: Final = 250
"""Notes per call: the server does nothing else meanwhile."""

_SHARE: Final = 50
"""How many notes are read of a slot at least."""


async def open_noting_redis(
    url: str, *, blocking: bool = False, credentials: Credentials | None = None
) -> NotingRedisStore:
    """The store at this URL, after a first word with its server."""
    store = NotingRedisStore(with_credentials(parse_address(url), credentials), blocking=blocking)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store


@timed_store
class NotingRedisStore(RedisStore):
    """Tasks in Redis, and notes of what changed."""

    _writers = scripts.NOTING

    async def add(
        self,
        tasks: Sequence[Task],
        *,
        now: Instant | None = None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State] | None = None,
        mark: str | None = None,
    ) -> list[Receipt]:
        return await self._adder.add(tasks, now=now, bounds=bounds, elsewhere=elsewhere or {}, mark=mark)

    async def slots(self) -> set[int]:
        return await self._slots()

    async def marks(self, slots: Collection[int]) -> dict[int, str | None]:
        calls = [Call(key, ("GET", key)) for key in map(self._mark_of, slots)]
        replies = await self._client.run(calls, repeatable=True)
        return {slot: None if reply is None else reply.decode() for slot, reply in zip(slots, replies, strict=True)}

    async def put_mark(self, mark: str, slots: Collection[int], *, over: str | None) -> set[int]:
        calls = [Call(key, (mark, over or ""), scripts.MARK) for key in map(self._mark_of, slots)]
        replies = await self._client.run(calls, repeatable=True)
        return {slot for slot, bears in zip(slots, replies, strict=True) if bears}

    async def leave(self, changes: Sequence[Change]) -> list[Verdict]:
        return await self._changer.apply_by(scripts.SILENT.apply, change_entries(changes))

    async def count_ends(self, ended: Mapping[TaskId, State]) -> bool:
        entries = [
            entry_of(task_id, "x", b"c" if state is State.COMPLETED else b"") for task_id, state in ended.items()
        ]
        return b"l" in await self._changer.run(self._writers.apply, entries)

    async def note(self, ids: Sequence[TaskId], *, after: Span = 0) -> None:
        if not ids:
            return
        slots = sorted({slot_of_id(task_id) for task_id in ids})
        await self._registry.register(slots)
        # Asked here because a plain command cannot: the server's clock is the one that readers compare with.
        at = (await self.time() or 0) // MILLISECOND + after // MILLISECOND
        calls = []
        for slot in slots:
            outbox = self._keys.base(slot) + b"o"
            members = [id_bytes(task_id) or b"" for task_id in ids if slot_of_id(task_id) == slot]
            for first in range(0, len(members), _PIECE):
                words = [word for member in members[first : first + _PIECE] for word in (at, member)]
                calls.append(Call(outbox, ("ZADD", outbox, *words)))
        await self._client.run(calls, repeatable=True)

    async def read(self, limit: int) -> list[Note]:
        slots = await self._slots()
        # All slots at once, so that a busy one cannot hide the rest; that may give a few more than asked for.
        words = (max(limit // max(len(slots), 1), _SHARE), HIDDEN // MILLISECOND)
        calls = [Call(base, words, scripts.NOTES) for base in map(self._keys.base, slots)]
        # One queue that is on its way to another node does not keep the others from the journal.
        replies = await self._client.run(calls, leaving_out=True) if calls else []
        return [Note(id_text(member[:16]), len(member) > 16) for reply in replies for member in reply or ()]

    async def done(self, done: Sequence[Done]) -> None:
        by_slot: dict[int, list[Word]] = {}
        for one in done:
            by_slot.setdefault(slot_of_id(one.note.id), []).extend((_member(one.note), one.version))
        calls = [
            Call(base, words[first : first + 2 * _PIECE], scripts.NOTED)
            for base, words in ((self._keys.base(slot), words) for slot, words in by_slot.items())
            for first in range(0, len(words), 2 * _PIECE)
        ]
        if calls:
            # Notes that cannot be taken out now are read once more.
            await self._client.run(calls, repeatable=True, leaving_out=True)

    async def size(self) -> int:
        outboxes = [self._keys.base(slot) + b"o" for slot in await self._slots()]
        calls = [Call(outbox, ("ZCARD", outbox)) for outbox in outboxes]
        return sum(await self._client.run(calls, repeatable=True)) if calls else 0

    def _mark_of(self, slot: int) -> bytes:
        return self._keys.mark if slot == ROOT else self._keys.base(slot) + b"m"

    async def _slots(self) -> set[int]:
        """The slots that may have notes: also those that a server has forgotten that lost everything."""
        return {*await self._registry.slots(), *self._registry.used()}


def _member(note: Note) -> bytes:
    packed = id_bytes(note.id) or b""
    return packed + _REMOVED if note.removed else packed
