"""Changing tasks: what became of them, and that their workers are alive."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from fairlead.core.identity import TaskId, slot_in
from fairlead.core.instant import Instant, Span
from fairlead.core.task import ENDED
from fairlead.storage.quarantine import Damage, Quarantine, Removal
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Reply, Word
from fairlead.storage.redis.keys import Keys, damage_of, encode, id_bytes, id_text, moment_word, value_in
from fairlead.storage.redis.scripts import cut
from fairlead.storage.values import Beat, Change, Held, Pulse, Seen, Verdict

Entry: TypeAlias = tuple[int, int, tuple[Word, ...]]
"""The slot of a task, about how many bytes there are, and what a script is told of it."""

_Chunk: TypeAlias = tuple[Sequence[int], Call]
"""The places of the entries in a call, and the call."""

_HELD: Final = struct.Struct(">cI").pack
_SEEN: Final = struct.Struct(">cII").pack

_PULSES: Final = {b"h": Pulse.HELD, b"c": Pulse.CANCEL, b"l": Pulse.LOST}
_REMOVALS: Final = {
    b"a": Removal.REMOVED,
    b"l": Removal.REMOVED,
    b"s": Removal.CHANGED,
    b"m": Removal.GONE,
}
_VERDICTS: Final = {
    b"a": Verdict.APPLIED,
    b"l": Verdict.RELEASED,
    b"s": Verdict.STALE,
    b"r": Verdict.REPEATED,
    b"m": Verdict.MISSING,
}


_CURTAILED_AT_ONCE: Final = 250
"""Leases per call: the server does nothing else meanwhile."""


class Changer:
    """The part of a store that changes tasks."""

    def __init__(self, client: Client, keys: Keys, writers: scripts.Writers, quarantine: Quarantine) -> None:
        self._client = client
        self._keys = keys
        self._writers = writers
        self._quarantine = quarantine

    async def extend(self, beats: Sequence[Beat], *, lease: Span, grace: Span, now: Instant | None) -> list[Pulse]:
        """Renew leases, and store progress."""
        entries = [_beat_entry(beat) for beat in beats]
        common = (moment_word(now), lease, grace)
        replies = await self.run(scripts.EXTEND, entries, *common, repeatable=True)
        return [_PULSES[reply] for reply in await self._sound(entries, replies, b"l")]

    async def curtail(self, slots: Iterable[int], *, lease: Span, limit: int, now: Instant | None) -> int:
        """Cut leases of these slots that would end later than this long from now."""
        bases = [self._keys.base(slot) for slot in slots]
        words = (moment_word(now), lease, min(limit, _CURTAILED_AT_ONCE))
        calls = [Call(base, words, scripts.CURTAIL) for base in bases]
        if not calls:
            return 0
        return sum(cut or 0 for cut in await self._client.run(calls, repeatable=True, leaving_out=True))

    async def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """Compare and set statuses."""
        entries = change_entries(changes)
        if not _are_outcomes(changes):
            return await self.apply_by(self._writers.apply, entries)
        verdicts = [Verdict.APPLIED] * len(entries)
        chunks = self._chunks(self._writers.settle, entries, ())
        replies = await self._client.run([call for _, call in chunks])
        left = [at for (chunk, _), done in zip(chunks, replies, strict=True) if not done for at in chunk]
        if left:
            for at, verdict in zip(
                left, await self.apply_by(self._writers.apply, [entries[at] for at in left]), strict=True
            ):
                verdicts[at] = verdict
        return verdicts

    async def apply_by(self, script: scripts.Script, entries: Sequence[Entry]) -> list[Verdict]:
        """Compare and set statuses by this script."""
        replies = await self.run(script, entries)
        try:
            return [_VERDICTS[reply] for reply in replies]
        except TypeError:
            # Only a reply that says that there is no task is a list, which is not hashable.
            return [_VERDICTS[reply] for reply in await self._sound(entries, replies, b"m")]

    async def set_aside(self, damage: Damage) -> Removal:
        """Remove what is no task, if it is still what was read."""
        (reply,) = await self.run(self._writers.apply, [entry_of(damage.id, b"!", value_in(damage))])
        return _REMOVALS[reply]

    async def _sound(self, entries: Sequence[Entry], replies: Sequence[Reply], instead: bytes) -> Sequence[Reply]:
        """The replies, with another instead of each that says that there is no task; those are set aside."""
        if all(type(reply) is bytes for reply in replies):
            return replies
        met = [
            damage_of(id_text(bytes(entry[2][0])), reply[1])  # type: ignore[arg-type]
            for entry, reply in zip(entries, replies, strict=True)
            if isinstance(reply, list)
        ]
        await self._quarantine.set_aside(met)
        return [instead if isinstance(reply, list) else reply for reply in replies]

    async def run(
        self, script: scripts.Script, entries: Sequence[Entry], *common: Word, repeatable: bool = False
    ) -> list[Reply]:
        """The replies of a script that takes entries of one slot at a time, in the order of the entries."""
        chunks = self._chunks(script, entries, common)
        answers: list[Reply] = [None] * len(entries)
        answered = await self._client.run([call for _, call in chunks], repeatable=repeatable)
        for (chunk, _), replies in zip(chunks, answered, strict=True):
            for at, reply in zip(chunk, replies, strict=True):
                answers[at] = reply
        return answers

    def _chunks(self, script: scripts.Script, entries: Sequence[Entry], common: tuple[Word, ...]) -> list[_Chunk]:
        by_slot: dict[int, list[int]] = {}
        for at, entry in enumerate(entries):
            by_slot.setdefault(entry[0], []).append(at)
        chunks: list[_Chunk] = []
        for slot, positions in by_slot.items():
            base = self._keys.base(slot)
            for chunk in cut(positions, lambda at: entries[at][1]):
                words: list[Word] = [*common]
                for at in chunk:
                    words += entries[at][2]
                chunks.append((chunk, Call(base, words, script, size=sum([entries[at][1] for at in chunk]))))
        return chunks


def change_entries(changes: Sequence[Change]) -> list[Entry]:
    """What a script that applies changes is told of them."""
    entries: list[Entry] = []
    for change in changes:
        status = b"" if change.status is None else encode(change.status)
        entries.append(entry_of(change.id, _guard(change.guard), status))
    return entries


def entry_of(task_id: TaskId, guard: Word, value: bytes) -> Entry:
    """What a script is told of a task: by whom, and what."""
    packed = id_bytes(task_id)
    if packed is None:
        # In no slot will a task be found.
        return 0, len(value), (b"", guard, value)
    return slot_in(packed), len(value), (packed, guard, value)


def _are_outcomes(changes: Sequence[Change]) -> bool:
    """Whether these are ends of different tasks, by the holders of their leases: what settle.lua can do."""
    for change in changes:
        if change.status is None or change.status.state not in ENDED or type(change.guard) is not Held:
            return False
    return len({change.id for change in changes}) == len(changes)


def _beat_entry(beat: Beat) -> Entry:
    return entry_of(beat.id, beat.token, b"" if beat.progress is None else encode(beat.progress))


def _guard(guard: Held | Seen) -> bytes:
    if isinstance(guard, Held):
        return _HELD(b"h", guard.version) + guard.token.encode()
    return _SEEN(b"s", guard.version, guard.beats)
