"""Names, ids and traces: what they may look like and what a task id carries.

A task id is a UUID version 8 written as 32 hexadecimal digits:

    48 bits   milliseconds since 1970      so ids sort by time of submit
     4 bits   version, always 8
    12 bits   serial within the millisecond
     2 bits   variant, always binary 10
    14 bits   slot of the queue            so the id alone leads to its queue's shard
    48 bits   noise

A trace is written as W3C writes it down (`traceparent`), or is an id of the submitter's own.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from typing import Final, NewType

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import MILLISECOND, Instant
from fairlead.core.validation import check_type, several_of, shown

TaskId = NewType("TaskId", str)
WorkerId = NewType("WorkerId", str)
LeaseToken = NewType("LeaseToken", str)

SERIALS_PER_MILLISECOND: Final = 1 << 12
SLOTS: Final = 1 << 14
NOISE_BYTES: Final = 6
PLACE: Final = slice(16, 20)
"""Where in a task id the variant and the slot are."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_ID: Final = re.compile(r"[0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15}")
_pack: Final = struct.Struct(f">QH{NOISE_BYTES}s").pack


@functools.lru_cache(maxsize=64)
def slot_of(queue: str) -> int:
    """The slot of a queue: a stable hash of its name."""
    return zlib.crc32(queue.encode()) % SLOTS


def tick_of(at: Instant) -> int:
    """The finest moment an id can carry: a millisecond and a serial in it."""
    return at * SERIALS_PER_MILLISECOND // MILLISECOND


def task_id(tick: int, slot: int, noise: bytes) -> TaskId:
    """The id of a task submitted at this tick to a queue of this slot."""
    milliseconds, serial = divmod(tick, SERIALS_PER_MILLISECOND)
    # By its bytes, which takes a third of the time that formatting takes: every submit comes by here.
    return TaskId(_pack(milliseconds << 16 | 8 << 12 | serial, 0b10 << 14 | slot, noise).hex())


def slot_of_id(task: TaskId) -> int:
    """The slot that a task id carries."""
    return int(task[PLACE], 16) & (SLOTS - 1)


def slot_in(packed: bytes) -> int:
    """The slot that the 16 bytes of a task id carry."""
    return (packed[8] << 8 | packed[9]) % SLOTS


def place_of(slot: int) -> str:
    """A slot as task ids carry it: the letters of an id at `PLACE`."""
    return f"{0b10 << 14 | slot:04x}"


def parse_task_id(text: str) -> TaskId:
    """A task id as a person writes it: any case, with or without the dashes of a UUID."""
    if not isinstance(text, str):
        raise InvalidTask("id", f"{shown(text)} is not a task id; a task id is a text, as submit returned it")
    candidate = text.strip().replace("-", "").lower()
    if not _ID.fullmatch(candidate):
        raise InvalidTask(
            "id", f"{shown(text)} is not a task id; a task id is 32 hexadecimal digits, as submit returned it"
        )
    return TaskId(candidate)


def registered_token(token: LeaseToken, registration: str) -> LeaseToken:
    """A lease token that names the registration of the worker that it is for; none is named by an empty one."""
    return LeaseToken(f"{token}={registration}") if registration else token


def registration_of(token: str) -> str:
    """The registration that a lease token names; empty if it names none."""
    return token.partition("=")[2]


def check_name(field: str, name: str) -> str:
    """A name that every store can use in a key: queue, type, capability, tag."""
    return known_name(field, check_type(field, name, str, "write a name such as 'mail'"))


def names_of(field: str, said: object) -> tuple[str, ...]:
    """The names that a user means by a list or a set of them."""
    return tuple(check_name(field, each) for each in several_of(field, said, "write a list of names, such as ['gpu']"))


@functools.lru_cache(maxsize=1024)
def known_name(field: str, name: str) -> str:
    """`check_name`, for what is a `str` for certain."""
    if not _NAME.fullmatch(name):
        raise InvalidTask(
            field,
            f"{field} {shown(name)} is not a valid name; use 1 to 200 letters, digits and the characters _ . : -",
        )
    return name


_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_traceparent(trace: str) -> bool:
    """Whether this is a W3C traceparent, which leads back to the span that submitted the task."""
    return _TRACEPARENT.fullmatch(trace) is not None


def traceparent_in(trace: str | None) -> str | None:
    """The traceparent, if this is one."""
    return trace if trace is not None and is_traceparent(trace) else None


def trace_id_of(trace: str | None) -> str | None:
    """The id of the trace in a traceparent; any other text is an id of the submitter's own."""
    if trace is None:
        return None
    parent = _TRACEPARENT.fullmatch(trace)
    return trace if parent is None else parent[1]
