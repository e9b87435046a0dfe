"""What bodies may say otherwise: other names of fields, priorities as numbers, and fields that are passed over.

The first clients of such a queue were written from its designs, which call some things otherwise. What they say is
accepted, and what is answered has the names of the HTTP reference. This is the one table of it. A body that has our own
names never comes by here: it is read again only when something in it was not known.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct, inspect

from fairlead.core.errors import InvalidTask
from fairlead.core.task import Priority

_TASK: Final = {"type": "task_type", "payload": "parameters", "user_id": "tenant"}

ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    "SubmitRequest": _TASK,
    "TaskTemplate": _TASK,
    "ProgressRequest": {"progress_percent": "percent", "status_message": "message"},
    "ReportedError": {"code": "type", "retryable": "retriable"},
}
"""By the name of a shape: what its fields may be called too, and what they are called."""

NUMBERS: Final[Mapping[bytes, Priority]] = {
    b"1": Priority.LOW,
    b"2": Priority.MEDIUM,
    b"3": Priority.HIGH,
    b"4": Priority.CRITICAL,
}
"""The priorities as whole numbers, the greater the more urgent: as a body writes them, and not otherwise."""


class WorkerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker says. It may be newer than its server: a field that is not known is passed over, and named."""


class Heard(Struct, frozen=True):
    """A body in our own names."""

    body: bytes
    ignored: tuple[str, ...] = ()
    """The fields that were passed over, such as `running[0].since`."""


def heard(body: bytes, shape: Any) -> Heard | None:
    """A body as it is meant that does not have its shape; None if there is nothing to read in it otherwise.

    Values stay as they are written, to the digit. Raises InvalidTask for one that has the same field by two names.
    """
    plan = _plan_of(shape)
    if plan is None:
        return None
    ignored: list[str] = []
    try:
        meant = _meant(Raw(body), plan, "", ignored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return Heard(bytes(meant), tuple(ignored))


class _Shape:
    """How one struct is read."""

    def __init__(self, kind: inspect.StructType) -> None:
        self.aliases = ALIASES.get(kind.cls.__name__, {})
        self.passes_over = issubclass(kind.cls, WorkerBody)
        self.fields = {field.encode_name: field.type for field in kind.fields}
        self._plans: dict[str, _Plan | None] = {}

    def plan(self, field: str) -> _Plan | None:
        """How the value of a field is read."""
        if field not in self._plans:
            self._plans[field] = _planned(self.fields[field])
        return self._plans[field]


class _Each:
    """How each of a list is read."""

    def __init__(self, inner: _Plan) -> None:
        self.inner = inner


class _Number:
    """A priority, which may be a number."""


_Plan: TypeAlias = _Shape | _Each | _Number
_NUMBER: Final = _Number()
_decode_object: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list: Final = msgspec.json.Decoder(list[Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


@functools.cache
def _plan_of(shape: Any) -> _Plan | None:
    return _planned(inspect.type_info(shape))


_SHAPES: Final[dict[type, _Shape]] = {}


def _planned(kind: inspect.Type) -> _Plan | None:
    """How a value of this kind is read; None if there is nothing in it that could be said otherwise."""
    match kind:
        case inspect.Metadata(type=inner):
            return _planned(inner)
        case inspect.UnionType(types=options):
            return next((plan for option in options if (plan := _planned(option)) is not None), None)
        case inspect.StructType(cls=cls):
            return _SHAPES.get(cls) or _SHAPES.setdefault(cls, _Shape(kind))
        case inspect.CollectionType(item_type=item):
            inner_plan = _planned(item)
            return None if inner_plan is None else _Each(inner_plan)
        case inspect.LiteralType(values=values) if Priority.CRITICAL.word in values:
            return _NUMBER
        case _:
            return None


def _meant(value: Raw, plan: _Plan, path: str, ignored: list[str]) -> Raw:
    if isinstance(plan, _Number):
        priority = NUMBERS.get(bytes(value).strip())
        return value if priority is None else Raw(_encode(priority.word))
    text = bytes(value).lstrip()
    if isinstance(plan, _Each):
        if not text.startswith(b"["):
            return value
        each = [_meant(one, plan.inner, f"{path}[{at}]", ignored) for at, one in enumerate(_decode_list(value))]
        return Raw(_encode(each))
    if not text.startswith(b"{"):
        return value
    return Raw(_encode(_members(_decode_object(value), plan, path, ignored)))


def _members(said: Mapping[str, Raw], shape: _Shape, path: str, ignored: list[str]) -> dict[str, Raw]:
    """The fields of an object by our own names."""
    meant: dict[str, Raw] = {}
    for name, value in said.items():
        field = shape.aliases.get(name, name)
        if field != name and field in said:
            where = f"{path}.{field}" if path else field
            raise InvalidTask(
                where,
                f"the body has both {field!r} and {name!r}, which mean the same; keep one of them, best {field!r}",
            )
        at = f"{path}.{field}" if path else field
        if field not in shape.fields and shape.passes_over:
            ignored.append(at)
            continue
        plan = shape.plan(field) if field in shape.fields else None
        meant[field] = value if plan is None else _meant(value, plan, at, ignored)
    return meant
