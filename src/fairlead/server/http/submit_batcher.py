"""Single submits that arrive together are answered together.

A busy server has read several requests before it comes to answer the first. Each on a way of its own through the
application and the engine costs about twice what its share of a batch does. So those that are at hand at the same time
become one call of the engine, and nobody waits for others to come.

This is a short cut, not another door. Whatever is unusual about a request sends it the ordinary way, through ASGI; what
is left is checked by the same gate, decoder and engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from starlette.types import Scope

from fairlead.core.submission import Submission
from fairlead.core.tenancy import Role, tenant_named
from fairlead.engine.runtime import telemetry
from fairlead.server.auth.origins import Headers
from fairlead.server.auth.principal import Principal
from fairlead.server.http.bodies import JSON, LARGE, Decoder, is_json
from fairlead.server.http.fast_response import SAID, Direct
from fairlead.server.http.headers import head_of
from fairlead.server.http.problems import Refusal, refusal_for
from fairlead.server.routes.batch_submit import store_all, traceparent_of
from fairlead.server.state import ServerState
from fairlead.wire.problems import MEDIA_TYPE
from fairlead.wire.tasks import SubmitRequest, TaskCreated, submission_of

METHOD: Final = "POST"
PATH: Final = "/api/v1/tasks"
_WHAT: Final = f"{METHOD} {PATH}"

_ENCODE: Final = msgspec.json.Encoder().encode
_PROBLEM: Final = MEDIA_TYPE.encode()


class Together:
    """Answers single submits by as many as are at hand."""

    def __init__(self, state: ServerState, *, proxied: bool = False) -> None:
        """Behind a proxy that is trusted nothing is taken: what it says of the caller is read in ASGI."""
        self._state = state
        self._proxied = proxied
        self._decode = Decoder(SubmitRequest).checked
        self._most = min(LARGE, state.settings.body_limit)
        self._arrived: list[tuple[Direct, Callable[[], None]]] = []

    def takes(self, scope: Scope) -> bool:
        """Whether a request may be one for here, by the first line of its head."""
        is_submit = scope["path"] == PATH and scope["method"] == METHOD and not scope["query_string"]
        return is_submit and not self._proxied

    def add(self, request: Direct, otherwise: Callable[[], None]) -> asyncio.Task[None] | None:
        """Answer a request that has arrived whole, or have it answered otherwise; the task, if this starts one."""
        self._arrived.append((request, otherwise))
        return asyncio.get_running_loop().create_task(self._answer()) if len(self._arrived) == 1 else None

    async def _answer(self) -> None:
        arrived, self._arrived = self._arrived, []
        # A submit that is traced has a span of its own.
        ordinary = telemetry.active() or self._state.stopping.is_set()
        requests: list[Direct] = []
        callers: list[Principal] = []
        submissions: list[Submission] = []
        for request, otherwise in arrived:
            try:
                wish = None if ordinary else self._read(request)
            except Exception as error:
                self._say(request, refusal_for(error, _WHAT))
                continue
            if wish is None:
                otherwise()
                continue
            requests.append(request)
            callers.append(wish[0])
            submissions.append(wish[1])
        if requests:
            await self._store(requests, submissions, callers)

    def _read(self, request: Direct) -> tuple[Principal, Submission] | None:
        """The caller and what it submits; None if it takes the ordinary way to tell."""
        said, body = request.scope["headers"], request.seen()
        headers: Headers = request.scope[SAID]
        # A task that waits for others may wait for those of its own request only.
        if len(headers) < len(said) or len(body) > self._most or b'"after"' in body:
            return None
        media_type = headers.get(b"content-type", JSON)
        if media_type != JSON and not is_json(media_type):
            return None
        caller = self._state.gate.admit_at_once(headers, Role.SUBMIT, changes=True)
        if caller is None:
            return None
        wish: SubmitRequest = self._decode(body)
        traceparent = traceparent_of(headers.items()) if b"traceparent" in headers else None
        submission = submission_of(wish, tenant_named(caller.tenant, wish.tenant), traceparent)
        return None if submission.after else (caller, submission)

    async def _store(
        self, requests: Sequence[Direct], submissions: Sequence[Submission], callers: Sequence[Principal]
    ) -> None:
        answers: Sequence[TaskCreated | Refusal]
        try:
            try:
                answers = await self._state.in_time(store_all(self._state, submissions, callers, len(requests)))
            except Exception as error:
                answers = [refusal_for(error, _WHAT)] * len(requests)
            for request, answer in zip(requests, answers, strict=True):
                self._say(request, answer)
        finally:
            # If the server is cut off, nobody is left to wait for an answer.
            for request in requests:
                request.hang_up()

    def _say(self, request: Direct, answer: TaskCreated | Refusal) -> None:
        scheme, last = request.scope["scheme"], self._state.stopping.is_set()
        if isinstance(answer, Refusal):
            own = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in answer.headers)
            request.answer(answer.status, head_of(_PROBLEM, scheme) + own, _ENCODE(answer.problem), last=last)
        else:
            request.answer(200 if answer.existing else 201, head_of(JSON, scheme), _ENCODE(answer), last=last)
