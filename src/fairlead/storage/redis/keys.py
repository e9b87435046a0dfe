"""What is kept where, and how a task becomes bytes and back.

Every key of a slot begins with the slot's base, a hash tag: `{fl:4711}`. The slot is what a task id carries, so an id
leads to its keys without a second index, and all that one operation touches is on one node of a Cluster. Behind it:

    t<id>            a task: spec and status                     string, see below
    l<lane>          the ready tasks of a lane                   sorted set: id by ready_at
    e                tasks under a lease                         sorted set: id by alarm
    a                other tasks that have an alarm              sorted set: id by alarm
    n                counts                                      hash: <lane><state's code>
    d                descriptors of the kinds that have tasks    hash: kind -> msgpack [queue, type, capabilities], and
                                                                 behind them true for tasks with concurrency keys, or
                                                                 true and true for fair ones
    q<queue>         lanes of a queue that have ready tasks      hash: lane -> descriptor
    h<queue> <name>  a lane view, by its selection's name         sorted set, see views.lua; expires
    z<queue>         what came to the front of lanes, for views   stream, expires
    s<name>          the types that claims select, or leave out  set, see select.lua; expires
    b<queue>         doorbell: a ring per new ready task         list, short, expires
    b <token>        doorbell of one claim that waits            list, short, expires
    o                outbox: what the journal has yet to learn   sorted set: id, or id and -, by when it may be read
    m                the mark of the journal's current store     string
    v                tasks that others wait for                  set
    v<id>            those who wait for a task                   list
    y<queue> <key>   idempotency key                             string: holder's id, until when in decimal
    p<lane> <key>    the ready tasks of a concurrency key        sorted set: id by ready_at
    f<lane>          the first of each key in a lane             sorted set: id by ready_at
    k<queue>         keys to be looked at, and when              sorted set: key by moment
    w<queue>         how many tasks of each key are ready        hash: key; under '' the limit they are full by
    r<queue>         how many tasks of each key are executing    hash: key
    g<queue>         when next starts are due, of rates          sorted set: name by moment, expires
    x<lane>          the ready tasks of a lane of fair tasks     sorted set: id by turn
    u<line>          how far the turns of a line have come       hash: l; k and a fair key; see fair.lua
    i<tree>          ids in order: the starts of buckets         sorted set by member
    i<tree><start>   a bucket of ids                             string: ids in order

A kind is a digest of (queue, type, capabilities) and whether there are concurrency keys, or fair ones; a lane is a kind
and the digit of a priority; a line, of fair tasks, is such a digit and a queue. Ids are their 16 bytes. Every key goes
when what it lists goes: with the last task of a slot nothing of the slot is left but what expires: doorbells, lane
views and their logs, and what is kept of rates. These keys are of no slot:

    {fl}slots        slots in use                                sorted set: slot by when it was last used, in seconds
    {fl}mark         the mark of the journal's current store     string
    {fl}r<kind>      records of a kind                           hash: name -> version, space, value
    {fl}feed         the feed                                    stream: one field, the value; expires

The value of a task is a msgpack array [where the status starts, kind, idempotency key or nil, spec, status], so that
Lua can find and replace the status without a look at the spec. With a concurrency key, the third is an array of the
idempotency key, or '', and the concurrency key. The id is in the key's name and not repeated in the spec; in its place,
a fair task has the step of its turns, '' for that of weight 1, a space and its fair key.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from fairlead.core.errors import StoreMismatch
from fairlead.core.health.quarantine import Quarantined, fault_of
from fairlead.core.identity import TaskId, place_of, slot_of
from fairlead.core.instant import Instant
from fairlead.core.queues.fairness import STEP, LineTurns
from fairlead.core.task import Fair, Lane, Priority, Spec, State, Status, Task
from fairlead.storage.quarantine import UNDECODABLE, Damage

CODES: Final = {
    State.SCHEDULED: "s",
    State.QUEUED: "q",
    State.EXECUTING: "e",
    State.COMPLETED: "c",
    State.FAILED: "f",
    State.DEAD_LETTER: "d",
    State.CANCELLED: "x",
}
STATES: Final = {code.encode(): state for state, code in CODES.items()}

TREES: Final = {state: b"w" if state in (State.QUEUED, State.EXECUTING) else CODES[state].encode() for state in State}
"""Which tree of ids lists the tasks of a state. Queued and executing share one, so that a claim need not move them."""

WHOLE_NAMES: Final = frozenset({b"e", b"a", b"n", b"d", b"o", b"v", b"m"})
"""What may come behind a slot's base, in the table above."""
BEGINNINGS: Final = frozenset(
    {b"t", b"l", b"q", b"b", b"y", b"i", b"p", b"f", b"k", b"w", b"r", b"g", b"v", b"h", b"z", b"s", b"x", b"u"}
)
"""What may come there with something behind it."""

EXPIRING: Final = frozenset({b"b", b"g", b"h", b"z", b"s"})
"""The beginnings of those that go by themselves."""

ROOT_NAMES: Final = ("slots", "mark", "feed")
"""The keys of no slot, but for those of records."""

_KINDS_KEPT: Final = 10_000


class _Descriptor(Struct, array_like=True):
    queue: str
    type: str
    requires: tuple[str, ...]
    keyed: bool = False
    """Also of fair tasks: an earlier version, which reads no further, looks for them where those with keys are."""
    fair: bool = False


_decode_descriptor: Final = msgspec.msgpack.Decoder(_Descriptor).decode


class Kind(Struct, frozen=True):
    """What tasks of one queue, type and capability set have in common, those with concurrency keys by themselves."""

    digest: str
    descriptor: bytes
    queue: str
    slot: int
    place: str
    """Its slot, as the ids of its tasks have it."""
    base: bytes
    """What every key of its slot begins with."""
    lanes: tuple[str, ...]
    """Its lanes, by priority."""
    mark: bytes
    """Its digest as a value holds it."""
    keyed: bool
    """Whether its tasks have concurrency keys."""
    fair: bool
    """Whether its tasks take turns."""


class Keys:
    """The names of one store's keys."""

    def __init__(self, prefix: str) -> None:
        self.registry, self.mark, self.feed = [f"{{{prefix}}}{name}".encode() for name in ROOT_NAMES]
        self._prefix = prefix
        self._bases: dict[int, bytes] = {}
        self._slots: dict[str, int] = {}
        self._kinds: dict[tuple[str, str, tuple[str, ...], bool, bool], Kind] = {}

    def base(self, slot: int) -> bytes:
        """What every key of a slot begins with."""
        base = self._bases.get(slot)
        if base is None:
            base = self._bases[slot] = b"{%s:%d}" % (self._prefix.encode(), slot)
        return base

    def slot(self, queue: str) -> int:
        """The slot of a queue."""
        slot = self._slots.get(queue)
        if slot is None:
            slot = self._slots[queue] = slot_of(queue)
        return slot

    def doorbell(self, queue: str) -> bytes:
        """The doorbell of a queue."""
        return self.base(self.slot(queue)) + b"b" + queue.encode()

    def line(self, queue: str, priority: Priority) -> bytes:
        """How far the turns of a line have come."""
        return self.base(self.slot(queue)) + f"u{int(priority)}{queue}".encode()

    def records(self, kind: str) -> bytes:
        """The records of a kind."""
        return f"{{{self._prefix}}}r{kind}".encode()

    def kind(self, spec: Spec | Lane) -> Kind:
        """The kind of a task, or of the tasks of a lane."""
        if isinstance(spec, Lane):
            keyed, fair = spec.keyed, spec.fair
        else:
            keyed, fair = spec.concurrency_key is not None, spec.takes_turns
        what = (spec.queue, spec.type, spec.requires, keyed, fair)
        kind = self._kinds.get(what)
        if kind is None:
            if len(self._kinds) >= _KINDS_KEPT:
                self._kinds.clear()
            described = (*what[:3], True, True) if fair else what[:4] if keyed else what[:3]
            descriptor = msgspec.msgpack.encode(described)
            digest = base64.urlsafe_b64encode(hashlib.blake2b(descriptor, digest_size=6).digest()).decode()
            slot = self.slot(spec.queue)
            lanes = tuple(f"{digest}{int(priority)}" for priority in Priority)
            mark = msgspec.msgpack.encode(digest)
            place, base = place_of(slot), self.base(slot)
            kind = self._kinds[what] = Kind(digest, descriptor, spec.queue, slot, place, base, lanes, mark, keyed, fair)
        return kind


def lane_of(kind: bytes, priority: bytes) -> Lane:
    """The lane of a kind with this descriptor and the digit of a priority."""
    try:
        described = _decode_descriptor(kind)
        keyed, fair = described.keyed and not described.fair, described.fair
        return Lane(described.queue, described.type, described.requires, Priority(int(priority)), keyed, fair)
    except UNDECODABLE as error:
        raise StoreMismatch(
            f"what Redis has of a kind of tasks cannot be decoded ({error}); restore it from a backup, or with a "
            f"journal empty it and run `fairlead rebuild`"
        ) from None


def line_turns(stored: bytes | None) -> LineTurns:
    """How far the turns of a line have come, by what its hash says of it."""
    return LineTurns() if stored is None else LineTurns(*(int.from_bytes(stored[at : at + 7], "big") for at in (0, 7)))


def id_bytes(task_id: TaskId) -> bytes | None:
    """The 16 bytes of an id; None for what can be no task's id."""
    try:
        packed = bytes.fromhex(task_id)
    except ValueError:
        return None
    return packed if len(packed) == 16 and len(task_id) == 32 else None


def id_text(packed: bytes) -> TaskId:
    """The id of these 16 bytes."""
    return TaskId(packed.hex())


@functools.lru_cache(maxsize=1024)
def absent_key(key: bytes) -> bytes:
    """The key with the hash tag of another one that is never stored. Every script names it: see `scripts`."""
    return key[: key.index(b"}") + 1] + b"!"


def moment_word(now: Instant | None) -> str | Instant:
    """A moment as scripts take it; None is the server's own clock, in the script."""
    return "" if now is None else now


def hash_slot(key: bytes) -> int:
    """The slot of a Redis Cluster that a key with a hash tag is in."""
    start = key.index(b"{")
    return binascii.crc_hqx(key[start + 1 : key.index(b"}", start)], 0) % 16384


_encoder: Final = msgspec.msgpack.Encoder()
encode: Final = _encoder.encode
"""Anything as msgpack."""

_HEAD: Final = 1 + 5 + 9
"""Bytes up to the idempotency key: the array, a 32-bit offset, a kind of eight letters."""

_SPEC_ARRAY: Final = 1 if len(Spec.__struct_fields__) < 16 else 3
_ID: Final = 2 + 32
"""Bytes of an id in a spec: a one-byte length and its letters."""

_START: Final = b"\x95\xce"
"""An array of five, the first a 32-bit number."""

_VALUE: Final = "value"
"""What is kept of a task that is set aside: all of it is one value."""

_BEHIND_FAIR: Final = Spec.__struct_fields__[Spec.__struct_fields__.index("fair") + 1 :]
_NOTHING: Final = b"\xc0"
_EMPTY_TEXT: Final = b"\xa0"


class _Stored(Struct, array_like=True):
    status_at: int
    kind: str
    keys: str | tuple[str, str] | None
    spec: Spec
    status: Status


_decode: Final = msgspec.msgpack.Decoder(_Stored).decode


def task_value(task: Task, kind: Kind) -> bytes:
    """A task's value."""
    spec, place = encode(task.spec), _EMPTY_TEXT
    if kind.fair and task.spec.fair is not None:
        step = task.spec.fair.step
        place = encode(f"{'' if step == STEP else step} {task.spec.fair.key}")
        behind = b"".join([encode(getattr(task.spec, name)) for name in _BEHIND_FAIR])
        spec = spec[: len(spec) - len(behind) - len(encode(task.spec.fair))] + _NOTHING + behind
    key = task.spec.idempotency_key
    concurrency_key = task.spec.concurrency_key
    if concurrency_key is not None:
        packed_key = encode((key or "", concurrency_key))
    else:
        packed_key = _NOTHING if key is None else encode(key)
    status_at = _HEAD + len(packed_key) + len(spec) - _ID + len(place)
    return b"".join(
        (
            _START,
            status_at.to_bytes(4, "big"),
            kind.mark,
            packed_key,
            spec[:_SPEC_ARRAY],
            place,
            spec[_SPEC_ARRAY + _ID :],
            encode(task.status),
        )
    )


_STATUS_AT: Final = slice(2, 6)
"""Where a value says where its status starts."""
_KIND: Final = slice(7, _HEAD)
_UNREADABLE: Final = "the server finds no status in its value"


def tasks_in(reply: Sequence[bytes]) -> tuple[list[Task], Sequence[Damage]]:
    """The tasks of ids and values in turn, as scripts answer them, and what is no task among them."""
    try:
        return [task_of(TaskId(reply[at].hex()), reply[at + 1]) for at in range(0, len(reply), 2)], ()
    except UNDECODABLE:
        return _sorted_out(reply)


def _sorted_out(reply: Sequence[bytes]) -> tuple[list[Task], list[Damage]]:
    tasks: list[Task] = []
    met: list[Damage] = []
    for at in range(0, len(reply), 2):
        # Behind the id of one that the script could not read is a mark.
        task_id, value = TaskId(reply[at][:16].hex()), reply[at + 1]
        try:
            if len(reply[at]) > 16:
                raise ValueError(_UNREADABLE)
            tasks.append(task_of(task_id, value))
        except UNDECODABLE as error:
            met.append(damage_of(task_id, value, error))
    return tasks, met


def damage_of(task_id: TaskId, value: bytes, error: Exception | None = None) -> Damage:
    """What was met in place of a task; without an error, by a script."""
    status_at = int.from_bytes(value[_STATUS_AT], "big") if value.startswith(_START) else 0
    return Damage(task_id, {_VALUE: value}, str(error or _UNREADABLE), fault_of(value[status_at:]))


def revived(quarantined: Quarantined) -> Task:
    """The task that was set aside; raises one of `UNDECODABLE`."""
    return task_of(TaskId(quarantined.name), quarantined.parts[_VALUE])


def value_in(damage: Damage) -> bytes:
    """The value that was met in place of a task."""
    return damage.parts[_VALUE]


def kind_in(value: bytes) -> bytes:
    """The kind that a value says it is of, if it begins as values do."""
    return value[_KIND]


@functools.lru_cache(maxsize=1024)
def _fair_in(place: str) -> Fair:
    """Whose turns a task takes, by what its spec has in place of an id."""
    step, _, key = place.partition(" ")
    return Fair(key, int(step) if step else STEP)


def task_of(task_id: TaskId, value: bytes) -> Task:
    """The task of this id with this value."""
    stored = _decode(value)
    # The struct was made a line above and no one else has seen it: setting its id is still part of making it.
    if stored.spec.id:
        force_setattr(stored.spec, "fair", _fair_in(stored.spec.id))
    force_setattr(stored.spec, "id", task_id)
    return Task(stored.spec, stored.status)
