"""Adding tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from fairlead.core.errors import InvalidTask
from fairlead.core.identity import PLACE, TaskId, slot_of_id
from fairlead.core.instant import Instant
from fairlead.core.task import QUEUED, After, Fair, State, Status, Task
from fairlead.storage.redis import scripts
from fairlead.storage.redis.client.calls import Call, Client
from fairlead.storage.redis.client.resp import Reply, Word
from fairlead.storage.redis.keys import CODES, Keys, Kind, encode, id_bytes, id_text, moment_word, task_value
from fairlead.storage.redis.scripts import cut
from fairlead.storage.redis.slot_registry import Registry
from fairlead.storage.values import Added, Apart, Full, KeyHeld, KeyUnknown, Known, Missing, Receipt

_Entry: TypeAlias = tuple[int, Task, Kind, bytes]
"""A task to add: its place among the tasks given, itself, its kind and its value."""

_HOW: Final = {(False, False): "", (True, False): "k", (False, True): "f"}
"""What is special about the tasks of a kind, by whether they have concurrency keys and whether they take turns."""
_BEHIND_TURN: Final = Status.__struct_fields__[Status.__struct_fields__.index("turn") + 1 :]

_ADDED: Final = Added()
_KNOWN: Final = Known()
_KEY_UNKNOWN: Final = KeyUnknown()


class Adder:
    """The part of a store that takes new tasks."""

    def __init__(self, client: Client, keys: Keys, registry: Registry, *, replicas: int) -> None:
        self._client = client
        self._keys = keys
        self._registry = registry
        self._replicas = replicas

    async def add(
        self,
        tasks: Sequence[Task],
        *,
        now: Instant | None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State],
        mark: str | None = None,
    ) -> list[Receipt]:
        """Store new tasks; `elsewhere` is how those stand that they may wait for and that are not here.

        With a mark, those that have an idempotency key are stored only if their slot bears it.
        """
        receipts: list[Receipt] = [_ADDED] * len(tasks)
        left: Sequence[int] = range(len(tasks))
        if not bounds and _are_ready(tasks):
            alone = len(tasks) == 1 and tasks[0].spec.fair is None
            left = await (self._add_one(tasks[0]) if alone else self._add_ready(tasks))
            if not left:
                return receipts
        entries: list[_Entry] = []
        waits = False
        for at in left:
            task = tasks[at]
            kind = self._kind(task)
            if task.spec.after is not None and (found := self._unreachable(task.spec.after, kind)) is not None:
                receipts[at] = found
                continue
            waits = waits or task.spec.after is not None
            entries.append((at, task, kind, task_value(task, kind)))
        for turn in _turns(entries) if waits else [entries]:
            await self._store(turn, now, bounds, elsewhere, receipts, mark)
        return receipts

    async def _add_one(self, task: Task) -> Sequence[int]:
        """`_add_ready`, of one task."""
        kind = self._kind(task)
        if not self._registry.knows(kind.slot):
            await self._registry.register((kind.slot,))
        status, packed = task.status, bytes.fromhex(task.spec.id)
        lane, key, value = kind.lanes[status.priority], kind.base + b"t" + packed, task_value(task, kind)
        words = (lane, kind.queue, kind.descriptor, status.ready_at, packed, key, value)
        call = Call(kind.base, words, scripts.ADD_ONE)
        (done,) = await self._client.run((call,), repeatable=True, replicas=self._replicas)
        return () if done else (0,)

    async def _add_ready(self, tasks: Sequence[Task]) -> Sequence[int]:
        """Add tasks that are ready; the places of those with which it is not as simple as that."""
        parts: dict[tuple[int, bool], list[_Entry]] = {}
        if not tasks:
            return ()
        kind = self._kind(tasks[0])
        part = parts[kind.slot, kind.fair] = []
        alike: tuple[object, ...] = ()
        for at, task in enumerate(tasks):
            spec = task.spec
            what = (spec.queue, spec.type, spec.requires, spec.fair is None)
            # What is submitted together is mostly alike.
            if what != alike or spec.id[PLACE] != kind.place:
                kind, alike = self._kind(task), what
                part = parts.setdefault((kind.slot, kind.fair), [])
            part.append((at, task, kind, task_value(task, kind)))
        chunks = [chunk for part in parts.values() for chunk in cut(part, _size)]
        await self._registry.register({slot for slot, _ in parts})
        calls = [_fair_call(chunk) if chunk[0][2].fair else _ready_call(chunk) for chunk in chunks]
        replies = await self._client.run(calls, repeatable=True, replicas=self._replicas)
        return [entry[0] for chunk, done in zip(chunks, replies, strict=True) if not done for entry in chunk]

    async def _store(
        self,
        entries: Sequence[_Entry],
        now: Instant | None,
        bounds: Mapping[str, int],
        elsewhere: Mapping[TaskId, State],
        receipts: list[Receipt],
        mark: str | None,
    ) -> None:
        """Store tasks, and put down what became of those that were not."""
        by_slot: dict[int, list[_Entry]] = {}
        for entry in entries:
            by_slot.setdefault(entry[2].slot, []).append(entry)
        chunks = [chunk for part in by_slot.values() for chunk in cut(part, _size)]
        if not chunks:
            return
        await self._registry.register(by_slot)
        replies = await self._client.run(
            [_add_call(chunk, now, bounds, elsewhere, mark) for chunk in chunks],
            repeatable=True,
            replicas=self._replicas,
        )
        for chunk, answers in zip(chunks, replies, strict=True):
            for entry, answer in zip(chunk, answers, strict=True):
                if answer != 1:
                    receipts[entry[0]] = _receipt(answer)

    def _unreachable(self, after: After, kind: Kind) -> Receipt | None:
        """The refusal of a task that names what can be no task, or on a Cluster one of another slot."""
        for named in after.tasks:
            if id_bytes(named) is None:
                return Missing(named)
            if self._client.spread and slot_of_id(named) != kind.slot:
                return Apart(named)
        return None

    def _kind(self, task: Task) -> Kind:
        kind = self._keys.kind(task.spec)
        if task.spec.id[PLACE] != kind.place:
            raise InvalidTask("id", f"task id {task.spec.id} is not of queue {kind.queue!r}; let submit make ids")
        return kind


def _size(entry: _Entry) -> int:
    return len(entry[3])


def _are_ready(tasks: Sequence[Task]) -> bool:
    """Whether these are different tasks that add_ready.lua can store."""
    for task in tasks:
        spec, status = task.spec, task.status
        if (
            status.state is not QUEUED
            or status.alarm is not None
            or spec.idempotency_key is not None
            or spec.concurrency_key is not None
            or (spec.fair is not None and (status.turn != 0 or not spec.takes_turns))
            or spec.after is not None
        ):
            return False
    return len(tasks) == 1 or len({task.spec.id for task in tasks}) == len(tasks)


def _ready_call(chunk: Sequence[_Entry]) -> Call:
    """The call that adds ready tasks of one slot: lane by lane, but what is stored in the order in which it came."""
    by_lane: dict[str, list[Word]] = {}
    kinds: dict[str, Kind] = {}
    stored: list[Word] = []
    prefix = chunk[0][2].base + b"t"
    for _, task, kind, value in chunk:
        status, packed = task.status, bytes.fromhex(task.spec.id)
        lane = kind.lanes[status.priority]
        words = by_lane.get(lane)
        if words is None:
            words, kinds[lane] = by_lane.setdefault(lane, []), kind
        words += (status.ready_at, packed)
        stored += (prefix + packed, value)
    lanes: list[Word] = [len(by_lane), len(chunk)]
    for lane, kind in kinds.items():
        lanes += (lane, kind.queue, kind.descriptor, len(by_lane[lane]) // 2)
    for words in by_lane.values():
        lanes += words
    return Call(chunk[0][2].base, lanes + stored, scripts.ADD_READY, size=sum(map(_size, chunk)))


def _fair_call(chunk: Sequence[_Entry]) -> Call:
    """The call that adds ready tasks of one slot that take turns, in the order in which they came."""
    numbers: dict[str, int] = {}
    lanes: list[Word] = []
    words: list[Word] = []
    counts: list[int] = []
    for _, task, kind, value in chunk:
        spec, status = task.spec, task.status
        lane = kind.lanes[status.priority]
        number = numbers.get(lane)
        if number is None:
            number = numbers[lane] = len(numbers) + 1
            lanes += (lane, kind.queue, kind.descriptor, 0)
            counts.append(0)
        counts[number - 1] += 1
        head, tail = _around_turn(value, status)
        fair = spec.fair or Fair("")
        words += (number, status.ready_at, bytes.fromhex(spec.id), fair.key, fair.step, head, tail)
    lanes[3::4] = counts
    base = chunk[0][2].base
    return Call(base, [len(numbers), len(chunk), *lanes, *words], scripts.ADD_FAIR, size=sum(map(_size, chunk)))


def _around_turn(value: bytes, status: Status) -> tuple[bytes, bytes]:
    """A task's value up to its turn, and what is behind that."""
    tail = b"".join([encode(getattr(status, name)) for name in _BEHIND_TURN])
    length = len(encode(status.turn)) if status.turn else 1
    return value[: len(value) - len(tail) - length], tail


def _turns(entries: Sequence[_Entry]) -> list[list[_Entry]]:
    """The entries in turns: a task comes after those that it waits for, which within a slot the order sees to."""
    turns: list[list[_Entry]] = []
    placed: dict[TaskId, tuple[int, int]] = {}
    for entry in entries:
        _, task, kind, _ = entry
        named = () if task.spec.after is None else task.spec.after.tasks
        earlier = [placed[one] for one in named if one in placed]
        turn = max((at if slot == kind.slot else at + 1 for at, slot in earlier), default=0)
        placed[task.id] = turn, kind.slot
        if turn == len(turns):
            turns.append([])
        turns[turn].append(entry)
    return turns


def _named(task: Task, after: After, elsewhere: Mapping[TaskId, State]) -> bytes:
    """What a task waits for, as add.lua takes it."""
    words = [b">", task.status.unmet.to_bytes(4, "big")]
    for named in after.tasks:
        state = elsewhere.get(named)
        words += (bytes.fromhex(named), b"?" if state is None else CODES[state].encode())
    return b"".join(words)


def _add_call(
    chunk: Sequence[_Entry],
    now: Instant | None,
    bounds: Mapping[str, int],
    elsewhere: Mapping[TaskId, State],
    mark: str | None,
) -> Call:
    base = chunk[0][2].base
    kinds = {entry[2].digest: entry[2] for entry in chunk}
    keyed = any(entry[1].spec.idempotency_key is not None for entry in chunk)
    words: list[Word] = [moment_word(now), mark if mark is not None and keyed else "", len(kinds)]
    for kind in kinds.values():
        words += (kind.digest, kind.queue, kind.descriptor, bounds.get(kind.queue, ""), _HOW[kind.keyed, kind.fair])
    for _, task, kind, value in chunk:
        spec, status = task.spec, task.status
        key = spec.idempotency_key
        alarm: Word | None = status.alarm
        if spec.after is not None and status.waits:
            alarm = _named(task, spec.after, elsewhere)
            # The count is made there, and put in place of these two.
            value = task_value(Task(spec, replace(status, pending=0, unmet=0)), kind)
        words += (
            bytes.fromhex(spec.id),
            kind.lanes[status.priority],
            CODES[status.state],
            status.ready_at,
            "" if alarm is None else alarm,
            "" if key is None else f"{spec.key_until or 0} {spec.queue} {key}",
            value,
        )
        if kind.fair:
            head, tail = _around_turn(value, status)
            words[-1:] = (head, status.turn, tail)
    return Call(base, words, scripts.ADD, size=sum(map(_size, chunk)))


def _receipt(answer: Reply) -> Receipt:
    if answer == 0:
        return _KNOWN
    if isinstance(answer, bytes):
        if answer == b"u":
            return _KEY_UNKNOWN
        return KeyHeld(id_text(answer)) if len(answer) == 16 else Missing(id_text(answer[1:]))
    depth, bound = answer
    return Full(depth, bound)
