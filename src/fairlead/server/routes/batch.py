"""Submitting many tasks at once: as one document, or as a stream of lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct
from starlette.types import ASGIApp

from fairlead.server.endpoint import Answer, Call, serve
from fairlead.server.http.bodies import LARGE, check_depth, check_unambiguous
from fairlead.server.http.problems import Refusal, invalid_value
from fairlead.server.routes.batch_stream import LineStream
from fairlead.server.routes.batch_submit import Item, read_one, submit_all, traceparent_of
from fairlead.wire import task_endpoints
from fairlead.wire.endpoint import Empty
from fairlead.wire.tasks import BATCH_LIMIT, BatchAnswer, BatchRequest, SubmitRequest

_JSON: Final = "application/json"


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
    view = call.view
    if _is_lines(call):
        return LineStream(view, traceparent_of(call.scope["headers"]))
    body = await view.bodies.read(call.scope, call.receive, view.settings.batch_limit)
    items = await read_batch(body)
    results = await submit_all(view, items, traceparent_of(call.scope["headers"]))
    rejected = sum(1 for result in results if result.status >= 400)
    answer = BatchAnswer(results=results, accepted=len(results) - rejected, rejected=rejected)
    return Answer(answer, status=207 if rejected else 200)


async def read_batch(body: bytes) -> Sequence[Item]:
    """The tasks in a body; refused as a whole if they cannot be told apart."""
    requests = await asyncio.to_thread(_read_together, body) if len(body) > LARGE else _read_together(body)
    if requests is None:
        return await asyncio.to_thread(_read_one_by_one, body)
    _check_size(len(requests))
    return requests


def _read_together(body: bytes) -> Sequence[Item] | None:
    """The tasks in a body; None if anything is wrong with any of them, which is rare."""
    try:
        batch = _DECODE(body)
        check_depth(body)
        check_unambiguous(body, _DECODE_ANY(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Refusal):
        return None
    return batch.tasks if isinstance(batch, BatchRequest) else batch


def _read_one_by_one(body: bytes) -> Sequence[Item]:
    raws = _raws(body)
    _check_size(len(raws))
    return [read_one(raw) for raw in raws]


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
        raise Refusal("invalid-json", "the body has the key 'tasks' twice; keep one of them", field="tasks")
    return items.tasks if isinstance(items, Items) else items


def _check_size(count: int) -> None:
    if count > BATCH_LIMIT:
        remedy = f"send several batches, or a stream of lines as {task_endpoints.LINES}"
        raise Refusal(
            "too-large",
            f"tasks has {count:,} entries, over the limit of {BATCH_LIMIT:,}; {remedy}",
            field="tasks",
            remedy=remedy,
        )


def _is_lines(call: Call[Empty, None]) -> bool:
    media_type = next((value for name, value in call.scope["headers"] if name == b"content-type"), b"")
    return media_type.partition(b";")[0].strip().lower() == task_endpoints.LINES.encode()


ENDPOINTS = (serve(task_endpoints.SUBMIT_BATCH, submit_batch),)
