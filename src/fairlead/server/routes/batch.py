"""Submitting many tasks at once: as one document, or as a stream of lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct
from starlette.types import ASGIApp

from fairlead.server.bodies import LARGE, check_unambiguous
from fairlead.server.endpoint import Answer, Call, Empty, Endpoint, Media
from fairlead.server.intake import Item, read_one, submit_all, traceparent_of
from fairlead.server.lines import LineStream
from fairlead.server.principal import Role
from fairlead.server.refusals import Refusal, invalid_value
from fairlead.wire.tasks import BATCH_LIMIT, BatchAnswer, BatchRequest, SubmitRequest

_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"


class Items(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch whose tasks are yet to be read."""

    tasks: list[Raw]


_DECODE: Final = msgspec.json.Decoder(BatchRequest | list[SubmitRequest]).decode
_DECODE_ITEMS: Final = msgspec.json.Decoder(Items | list[Raw]).decode
_DECODE_ANY: Final = msgspec.json.Decoder().decode


async def submit_batch(call: Call[Empty, None]) -> Answer | ASGIApp:
    """Store up to 1,000 tasks; each succeeds or fails by itself, and those stored are durable when this is answered.

    The body is `{"tasks": […]}` or the array alone. The answer has a result for each task, in their order, and its
    status is 200, or 207 if any was rejected.

    With the content type `application/x-ndjson` the body is a stream of any number of lines, each a task. They are
    stored as they arrive and answered in the same form, a result per line with status 200 for the whole: read the
    answers while you send, or the server stops reading. Blank lines are skipped, and a line that is wrong fails alone.
    """
    hub = call.hub
    if _is_lines(call):
        return LineStream(hub, call.principal, traceparent_of(call.scope["headers"]))
    body = await hub.bodies.read(call.scope, call.receive, hub.settings.batch_limit)
    items = await asyncio.to_thread(read_batch, body) if len(body) > LARGE else read_batch(body)
    results = await submit_all(hub, call.principal, items, traceparent_of(call.scope["headers"]))
    rejected = sum(1 for result in results if result.status >= 400)
    answer = BatchAnswer(results=results, accepted=len(results) - rejected, rejected=rejected)
    return Answer(answer, status=207 if rejected else 200)


def read_batch(body: bytes) -> Sequence[Item]:
    """The tasks in a body; refused as a whole if they cannot be told apart."""
    try:
        batch = _DECODE(body)
        # Nearly always nothing is wrong with any of them, and all can be looked at together.
        check_unambiguous(body, _DECODE_ANY(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Refusal):
        raws = _raws(body)
        _check_size(len(raws))
        return [read_one(raw) for raw in raws]
    requests = batch.tasks if isinstance(batch, BatchRequest) else batch
    _check_size(len(requests))
    return requests


def _raws(body: bytes) -> list[Raw]:
    try:
        items = _DECODE_ITEMS(body)
    except msgspec.ValidationError as error:
        raise invalid_value(error, shape=BatchRequest) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal("invalid-json", f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise Refusal("invalid-json", "the body is nested too deeply; flatten it") from None
    # Whether the batch itself names a key twice; what is inside of its tasks is looked at one by one.
    if isinstance(items, Items) and msgspec.json.encode(items).count(b":") != body.count(b":"):
        raise Refusal("invalid-json", "the body names 'tasks' twice; name it once", field="tasks")
    return items.tasks if isinstance(items, Items) else items


def _check_size(count: int) -> None:
    if count > BATCH_LIMIT:
        remedy = f"send several batches, or a stream of lines as {_LINES}"
        raise Refusal(
            "too-large",
            f"tasks has {count:,} entries, over the limit of {BATCH_LIMIT:,}; {remedy}",
            field="tasks",
            remedy=remedy,
        )


def _is_lines(call: Call[Empty, None]) -> bool:
    media_type = next((value for name, value in call.scope["headers"] if name == b"content-type"), b"")
    return media_type.partition(b";")[0].strip().lower() == _LINES.encode()


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/tasks/batch",
        handler=submit_batch,
        summary="Submit many tasks",
        role=Role.SUBMIT,
        bodies={_JSON: BatchRequest | list[SubmitRequest], _LINES: SubmitRequest},
        answers={200: (BatchAnswer, Media(_LINES)), 207: BatchAnswer},
    ),
)
