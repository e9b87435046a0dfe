"""Published task types over HTTP: their shapes, their endpoints, and the calls of a client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Raw, Struct

from fairlead.core.identity import check_name
from fairlead.core.instant import Instant
from fairlead.core.submission import LONGEST_WORKER, MOST_SCHEMA, Declaration
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Ask, Empty, Endpoint
from fairlead.wire.tasks import Names, PartialRequest, SubmitRequest, declared_of, request_of
from fairlead.wire.text import iso, parse_iso

_OF_NO_TASK: Final = {"properties": {"run_at": {"type": "null"}, "after": {"type": "array", "maxItems": 0}}}
"""What options of a type are beside those of a task, which alone is due at a moment and waits for others."""


class DeclaredTaskType(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task type to publish."""

    options: Annotated[SubmitRequest, Meta(extra_json_schema=_OF_NO_TASK)]
    """What a submit of it says unless it says otherwise; parameters are passed over. When a task is due and what it
    waits for are of single tasks: `run_at` and `after` are left out."""
    computed: Names = ()
    """The options that the program makes of a call's arguments, which a submit by name has to say itself."""
    parameters_schema: Annotated[Raw, Meta(extra_json_schema={"type": "object"})] = Raw(b"{}")
    """The JSON schema of its parameters."""


class TaskTypesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task types that a worker has handlers for."""

    types: Annotated[list[DeclaredTaskType], Meta(extra_json_schema={"maxItems": 1_000})]
    worker_id: Annotated[str, Meta(extra_json_schema={"maxLength": LONGEST_WORKER})] = ""
    """The worker that publishes them."""


class TaskTypeShown(Struct, frozen=True, kw_only=True):
    """A task type, as a worker has published it last."""

    task_type: str
    tenant: str | None
    """The tenant whose submits it counts for; null for all."""
    options: PartialRequest
    """What a submit of it says unless it says otherwise."""
    computed: list[str]
    """The options that its program makes of a call's arguments: a submit by name has to say them itself."""
    parameters_schema: Raw
    """The JSON schema of its parameters; an empty object in lists, and where none is known."""
    declared_at: str
    worker_id: str
    """The worker that has published it."""


class TaskTypeList(Struct, frozen=True, kw_only=True):
    """The published task types, by name."""

    types: list[TaskTypeShown]


class TaskTypesPublished(Struct, frozen=True, kw_only=True):
    """The answer to publishing task types."""

    published: int
    """How many were named."""


def type_shown(declaration: Declaration) -> TaskTypeShown:
    """A published type as it is shown."""
    return TaskTypeShown(
        task_type=declaration.submission.type,
        tenant=declaration.tenant,
        options=request_of(declaration.submission),
        computed=list(declaration.computed),
        parameters_schema=Raw(declaration.schema or b"{}"),
        declared_at=iso(declaration.at),
        worker_id=declaration.worker,
    )


def declaration_in(said: DeclaredTaskType, worker: str) -> Declaration:
    """What a request publishes."""
    schema = bytes(said.parameters_schema)
    return Declaration(
        submission=declared_of(said.options),
        computed=said.computed,
        schema=schema if len(schema) <= MOST_SCHEMA else b"",
        worker=worker,
    )


def _declaration_of(shown: TaskTypeShown) -> Declaration:
    return Declaration(
        submission=declared_of(shown.options),
        tenant=shown.tenant,
        computed=tuple(shown.computed),
        schema=b"" if bytes(shown.parameters_schema) == b"{}" else bytes(shown.parameters_schema),
        worker=shown.worker_id,
        at=parse_iso(shown.declared_at),
    )


def _shown(path: Mapping[str, str], declaration: Declaration, now: Instant) -> TaskTypeShown:
    return type_shown(declaration)


LIST_TYPES: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/task-types",
    summary="List the published task types",
    role=Role.READ,
    answers={200: TaskTypeList},
)
SHOW_TYPE: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/task-types/{task_type}",
    summary="Show a published task type",
    role=Role.READ,
    answers={200: TaskTypeShown},
    problems=(404,),
    calls="types.get",
    shows=_shown,
    about="Show a published task type: the options that a submit of it gets, and the schema of its parameters.",
)
DECLARE_TYPES: Final = Endpoint[Empty, TaskTypesRequest](
    method="PUT",
    path="/api/v1/task-types",
    summary="Publish task types",
    role=Role.WORK,
    body=TaskTypesRequest,
    answers={200: TaskTypesPublished},
)
REMOVE_TYPE: Final = Endpoint[Empty, None](
    method="DELETE",
    path="/api/v1/task-types/{task_type}",
    summary="Remove a published task type",
    role=Role.ADMIN,
    answers={200: TaskTypeShown},
    problems=(404,),
    calls="types.remove",
    shows=_shown,
    about="Remove a published task type: submits by name get the defaults, until a worker publishes it again.",
)


class RemoteTypes:
    """The published task types behind a server."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def all(self) -> list[Declaration]:
        """The published task types, by name, without the schemas of their parameters."""
        return [_declaration_of(shown) for shown in (await self._ask(LIST_TYPES, TaskTypeList)).types]

    async def get(self, task_type: str) -> Declaration:
        """A published task type, with the schema of its parameters; raises TypeNotFound if nobody publishes it."""
        return await self._one(SHOW_TYPE, task_type)

    async def declare(self, declarations: Iterable[Declaration]) -> None:
        """Publish types, in place of what was published of them before: the newest word counts."""
        said = list(declarations)
        types = [
            DeclaredTaskType(
                options=request_of(each.submission),
                computed=each.computed,
                parameters_schema=Raw(each.schema or b"{}"),
            )
            for each in said
        ]
        worker = said[0].worker if said else ""
        await self._ask(DECLARE_TYPES, TaskTypesPublished, TaskTypesRequest(types=types, worker_id=worker))

    async def remove(self, task_type: str) -> Declaration:
        """Remove a published task type: submits by name get the defaults, until a worker publishes it again."""
        return await self._one(REMOVE_TYPE, task_type)

    async def _one(self, endpoint: Endpoint[Any, Any], task_type: str) -> Declaration:
        name = check_name("task_type", task_type)
        return _declaration_of(await self._ask(endpoint, TaskTypeShown, subject=name, task_type=name))
