"""Storing what callers submit: many tasks at once, and single submits that arrive together.

A busy server has read several requests before it comes to answer the first. Each on a way of its own through the
application and the engine costs about twice what its share of a batch does. So those that are at hand at the same time
become one call of the engine, and nobody waits for others to come.

This is a short cut, not another door. Whatever is unusual about a request sends it the ordinary way, through ASGI; what
is left is checked by the same gate, decoder and engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import replace
from starlette.types import Scope

from fairlead.core.errors import AdmissionRefused, FairleadError, Forbidden
from fairlead.core.identity import traceparent_in
from fairlead.core.submission import Submission, check_holder, of_bound
from fairlead.core.tenancy import Role, tenant_named
from fairlead.engine.runtime import telemetry
from fairlead.engine.runtime.event_loop import FEW, Turn
from fairlead.server.admission import Admitted
from fairlead.server.auth.credentials import Headers, Principal
from fairlead.server.http.bodies import JSON, LARGE, Decoder, is_json
from fairlead.server.http.problems import Refusal, refusal_for, refusal_of
from fairlead.server.http.response import SAID, Direct, head_of
from fairlead.server.state import ServerState
from fairlead.wire.endpoint import MEDIA_TYPE
from fairlead.wire.explanations import CauseShown
from fairlead.wire.tasks import SubmitRequest, TaskCreated, created, submission_of

Item: TypeAlias = SubmitRequest | Refusal
"""A task to submit, or why it cannot be read."""

_DECODER: Final = Decoder(SubmitRequest)


def read_one(text: bytes | Raw) -> Item:
    """The task in a JSON text, or why it cannot be read."""
    try:
        request: SubmitRequest = _DECODER.checked(bytes(text))
    except Refusal as refusal:
        return refusal
    return request


def traceparent_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The traceparent in the headers of a request; one that is not well formed counts for nothing, as W3C wants it."""
    for name, value in headers:
        if name == b"traceparent":
            return traceparent_in(value.decode("latin-1").strip())
    return None


async def store_all(
    state: ServerState, submissions: Sequence[Submission], callers: Sequence[Principal], requests: int = 1
) -> list[TaskCreated | Refusal]:
    """Store what each of the callers submits, in one request or in one each; what to tell them, in their order."""
    if not state.admission.on:
        return await _store(state, submissions, callers, ())
    # What is taken depends on the queue and the priority, which a submit by name may leave to its type's declaration.
    queue_cache = state.engine.queue_cache
    await queue_cache.refresh()
    submissions = [queue_cache.as_declared(each) if each.by_name else each for each in submissions]
    admitted = await state.admission.admit(submissions, callers, requests)
    try:
        return await _store_admitted(state, submissions, callers, admitted)
    finally:
        admitted.leave()


async def _store_admitted(
    state: ServerState, submissions: Sequence[Submission], callers: Sequence[Principal], admitted: Admitted
) -> list[TaskCreated | Refusal]:
    """Store what was taken; what was not is refused, and so is what was to wait for it."""
    wishes: list[Submission | Refusal] = [
        refusal_of(admitted.refusals[at]) if at in admitted.refusals else each for at, each in enumerate(submissions)
    ]
    if admitted.refusals and any(isinstance(wish, Submission) and wish.after for wish in wishes):
        wishes = await placed(wishes)
    places = [at for at, wish in enumerate(wishes) if isinstance(wish, Submission)]
    listed = set(admitted.listed)
    answers: list[TaskCreated | Refusal] = [wish for wish in wishes if isinstance(wish, Refusal)]
    if places:
        told = await _store(
            state,
            [wish for wish in wishes if isinstance(wish, Submission)],
            [callers[at] for at in places],
            [place for place, at in enumerate(places) if at in listed],
        )
        by_place = dict(zip(places, told, strict=True))
        answers = [wish if isinstance(wish, Refusal) else by_place[at] for at, wish in enumerate(wishes)]
    for at, answer in enumerate(answers):
        admitted.arrived(at, stored=isinstance(answer, TaskCreated) and not answer.existing)
    return answers


async def _store(
    state: ServerState, submissions: Sequence[Submission], callers: Sequence[Principal], listed: Sequence[int]
) -> list[TaskCreated | Refusal]:
    counted = await state.depths.ready()
    submissions = [of_bound(each, caller.tenant) for each, caller in zip(submissions, callers, strict=True)]
    answers: list[TaskCreated | Refusal] = []
    warnings: dict[tuple[str, str, tuple[str, ...], str | None], Sequence[CauseShown]] = {}
    engine = state.engine
    storing = engine.submit_listed(submissions, listed) if listed else engine.submit_many(submissions)
    stored = await storing
    # Others had theirs while it was awaited.
    turn = Turn(len(submissions))
    for index, (submitted, caller) in enumerate(zip(stored, callers, strict=True)):
        if index % FEW == 0 and turn.is_over:
            await turn.next()
        if isinstance(submitted, FairleadError):
            if isinstance(submitted, AdmissionRefused):
                state.admission.note(submitted)
            answers.append(refusal_of(submitted))
            continue
        task = submitted.task
        if submitted.existing:
            try:
                answers.append(created(check_holder(caller.tenant, task), None, existing=True))
            except Forbidden as error:
                answers.append(refusal_of(error))
            continue
        position = state.depths.position(task) if counted else None
        kind = task.spec.queue, task.spec.type, task.spec.requires, caller.tenant
        told = warnings.get(kind)
        if told is None:
            told = warnings[kind] = await state.warnings(submitted, caller.tenant)
        answers.append(created(task, position, existing=False, warnings=told))
    return answers


async def placed(wishes: Sequence[Submission | Refusal]) -> list[Submission | Refusal]:
    """The wishes, whose positions count among those that are not refused; who waits for a refused one is refused."""
    places: dict[int, int] = {}
    now_placed: list[Submission | Refusal] = []
    turn = Turn(len(wishes))
    for position, wish in enumerate(wishes):
        if turn.is_over:
            await turn.next()
        if isinstance(wish, Submission) and wish.after:
            earlier = [one for one in wish.after if isinstance(one, int) and 0 <= one < position]
            lost = next((one for one in earlier if one not in places), None)
            if lost is not None:
                detail = f"after names task {lost} of the same batch, which was refused"
                wish = Refusal("invalid-value", detail, field="after", value=lost)
            else:
                wish = replace(wish, after=tuple(places[one] if one in earlier else one for one in wish.after))
        if isinstance(wish, Submission):
            places[position] = len(places)
        now_placed.append(wish)
    return now_placed


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
        self._decode = _DECODER.checked
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
