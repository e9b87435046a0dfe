"""Records in quarantine: they cannot be decoded, and can be shown, restored and discarded."""

from __future__ import annotations

from typing import Any

from fairlead.admin.quarantine import api
from fairlead.admin.quarantine.api import (
    QuarantineList,
    RestoreRequest,
    parts_of,
    quarantined_shown,
    quarantined_whole,
)
from fairlead.server.endpoint import Answer, Call, serve
from fairlead.wire.endpoint import Empty


async def list_quarantined(call: Call[Empty, None]) -> Answer:
    """List the records, tasks among them, that cannot be decoded and were set aside."""
    return Answer(
        QuarantineList(records=[quarantined_shown(each) for each in await call.state.engine.quarantine.all()])
    )


async def show(call: Call[Empty, None]) -> Answer:
    """Show a record in quarantine, with its bytes in base64, so that it can be repaired."""
    return Answer(quarantined_whole(await call.state.engine.quarantine.get(_key(call))))


async def restore(call: Call[Empty, RestoreRequest]) -> Answer:
    """Restore a record from quarantine: with the bytes that are given, or with those that were found.

    Refused if they cannot be decoded, or if something else is in that place by now.
    """
    kept, texts = call.state.engine.quarantine, call.body.parts
    parts = None if texts is None else parts_of(texts)
    return Answer(quarantined_whole(await kept.restore(_key(call), parts)))


async def discard(call: Call[Empty, None]) -> Answer:
    """Delete a record in quarantine for good, with its bytes; the answer is the record as it was.

    A queue whose settings are discarded has none of its own, and is no longer paused; a key, or a schedule, is gone.
    """
    return Answer(quarantined_whole(await call.state.engine.quarantine.discard(_key(call))))


def _key(call: Call[Any, Any]) -> str:
    return f"{call.path['kind']}/{call.path['name']}"


ENDPOINTS = (
    serve(api.LIST_QUARANTINED, list_quarantined),
    serve(api.SHOW, show),
    serve(api.RESTORE, restore),
    serve(api.DISCARD, discard),
)
