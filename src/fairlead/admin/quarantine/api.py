"""The quarantine over HTTP: its shapes, its endpoints, and the calls of a client."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from fairlead.core.errors import InvalidTask, NotInQuarantine
from fairlead.core.health.quarantine import Fault, Quarantined, check_parts
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Ask, Empty, Endpoint, named
from fairlead.wire.text import iso, parse_iso


class QuarantinedShown(Struct, kw_only=True):
    """A record that was set aside, without its bytes."""

    record: str
    """What it is called: its kind and its name, such as `schedule/nightly`."""
    kind: str
    """`task`, or the kind of record: `schedule`, `queue`, `key`, `circuit`, `worker` …"""
    name: str
    """The id of the task, or the name of the record."""
    queue: str | None
    """The queue that it was found in, where that is known."""
    error: str
    """What the decoder said."""
    found_at: str
    sizes: dict[str, int]
    """How many bytes were found, by part: of a task its `spec` and `status`, of a record its `value`."""


class QuarantinedWhole(QuarantinedShown, kw_only=True):
    """A record that was set aside, with its bytes, so that it can be exported, repaired and restored."""

    parts: dict[str, str]
    """By part, the bytes as they were found, in base64."""


class QuarantineList(Struct, kw_only=True):
    """All that was set aside, by kind and name."""

    records: list[QuarantinedShown]


class RestoreRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to put back."""

    parts: dict[str, str] | None = None
    """By part, the repaired bytes in base64; if left out, the bytes as they were found."""


def quarantined_shown(found: Quarantined) -> QuarantinedShown:
    """A record as a listing has it."""
    return QuarantinedShown(
        record=found.key,
        kind=found.kind,
        name=found.name,
        queue=found.queue,
        error=found.error,
        found_at=iso(found.found_at),
        sizes={part: len(value) for part, value in found.parts.items()},
    )


def quarantined_whole(found: Quarantined) -> QuarantinedWhole:
    """A record with its bytes."""
    return QuarantinedWhole(
        record=found.key,
        kind=found.kind,
        name=found.name,
        queue=found.queue,
        error=found.error,
        found_at=iso(found.found_at),
        sizes={part: len(value) for part, value in found.parts.items()},
        parts=texts_of(found.parts),
    )


def quarantined_of(shown: QuarantinedShown) -> Quarantined:
    """A record from how it is shown; in a listing it comes without its bytes."""
    return Quarantined(
        kind=shown.kind,
        name=shown.name,
        parts=parts_of(shown.parts) if isinstance(shown, QuarantinedWhole) else {},
        error=shown.error,
        found_at=parse_iso(shown.found_at),
        fault=Fault.DAMAGED,
        queue=shown.queue,
    )


def texts_of(parts: Mapping[str, bytes]) -> dict[str, str]:
    """The bytes of parts, as JSON has them."""
    return {part: base64.b64encode(value).decode() for part, value in parts.items()}


def parts_of(texts: Mapping[str, str]) -> dict[str, bytes]:
    """The bytes of parts from what JSON has of them."""
    try:
        return {part: base64.b64decode(text, validate=True) for part, text in texts.items()}
    except (binascii.Error, ValueError) as error:
        raise InvalidTask("parts", f"parts are not base64: {error}; encode the bytes of each part") from None


LIST_QUARANTINED: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/quarantine",
    summary="List the records in quarantine",
    role=Role.ADMIN,
    answers={200: QuarantineList},
)
SHOW: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/quarantine/{kind}/{name}",
    summary="Show a record in quarantine",
    role=Role.ADMIN,
    answers={200: QuarantinedWhole},
    problems=(404,),
)
RESTORE: Final = Endpoint[Empty, RestoreRequest](
    method="POST",
    path="/api/v1/quarantine/{kind}/{name}/restore",
    summary="Restore a record from quarantine",
    role=Role.ADMIN,
    body=RestoreRequest,
    body_optional=True,
    answers={200: QuarantinedWhole},
    problems=(404, 409),
)
DISCARD: Final = Endpoint[Empty, None](
    method="DELETE",
    path="/api/v1/quarantine/{kind}/{name}",
    summary="Discard a record in quarantine",
    role=Role.ADMIN,
    answers={200: QuarantinedWhole},
    problems=(404,),
)


class RemoteQuarantine:
    """What was set aside, behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def all(self) -> list[Quarantined]:
        """All records in quarantine, by kind and name, without the bytes."""
        return [quarantined_of(shown) for shown in (await self._ask(LIST_QUARANTINED, QuarantineList)).records]

    async def get(self, key: str) -> Quarantined:
        """The record in quarantine with this name."""
        return await self._one(SHOW, key)

    async def restore(self, key: str, parts: Mapping[str, bytes] | None = None) -> Quarantined:
        """Restore a record from quarantine, with these bytes if there are any, or with those that were found."""
        body = {"parts": None if parts is None else texts_of(check_parts(parts))}
        return await self._one(RESTORE, key, body)

    async def discard(self, key: str) -> Quarantined:
        """Delete a record in quarantine for good, with its bytes; the record as it was."""
        return await self._one(DISCARD, key)

    async def _one(self, endpoint: Endpoint[Any, Any], key: str, body: object = None) -> Quarantined:
        missing = NotInQuarantine(key)
        kind, _, name = named(key, missing).partition("/")
        shown = await self._ask(
            endpoint, QuarantinedWhole, body, subject=key, kind=named(kind, missing), name=named(name, missing)
        )
        return quarantined_of(shown)
