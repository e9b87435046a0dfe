"""The OpenAPI document: the endpoints and their types, as other programs read them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fairlead._version import __version__
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import COOKIE, CSRF_HEADER
from fairlead.server.docs.schemas import (
    LIKELY,
    REFERENCE,
    Schema,
    describe,
    fields,
    prose,
    referred,
    sample,
    without_null,
)
from fairlead.server.endpoint import Served
from fairlead.server.http.problems import KINDS
from fairlead.wire.endpoint import MEDIA_TYPE, Media, Problem
from fairlead.wire.tasks import BatchAnswer, TaskCreated

JSON: Final = "application/json"

_NAMED: Final = {
    "task_id": "The id of a task.",
    "worker_id": "The id that a worker got when it registered.",
    "schedule": "The name of a schedule.",
    "operation_id": "The id of an operation.",
    "queue": "The name of a queue.",
}
_TITLES: Final = {"fleet": "workers", "workers": "worker protocol", "scaling": "autoscale"}
"""What people call a tag whose name says less."""

_LINKED: Final = ("task_id", "worker_id", "lease")
"""The fields by which one operation leads to another."""

_WITH_BODY: Final = (408, 413, 415)
_WITH_ROLE: Final = (401, 403, 429, 503)
_ALWAYS: Final = (400, 422, 500)


def document(endpoints: Sequence[Served[Any, Any]]) -> dict[str, Any]:
    """The whole document."""
    return _Document(endpoints).made()


def operation_id(endpoint: Served[Any, Any]) -> str:
    """What programs call an endpoint: its group, and its name there."""
    return f"{endpoint.group.name}_{endpoint.name or endpoint.handler.__name__}"


def title_of(tag: str) -> str:
    """What people call a group of endpoints."""
    return _TITLES.get(tag, tag.replace("_", " "))


def takes_body(endpoint: Served[Any, Any]) -> bool:
    """Whether a request has a body, whoever reads it."""
    return bool(_bodies(endpoint))


def _submits(endpoint: Served[Any, Any]) -> bool:
    return TaskCreated in endpoint.answers.values() or BatchAnswer in endpoint.answers.values()


_ONLY: Final[dict[str, Callable[[Served[Any, Any]], bool]]] = {
    "invalid-json": takes_body,
    "queue-full": lambda endpoint: endpoint.role is Role.SUBMIT and takes_body(endpoint),
    "too-many-waiting": _submits,
    "overloaded": _submits,
    "invalid-query": lambda endpoint: "q" in endpoint.query.__struct_fields__ or _of_operations(endpoint),
    "operation-refused": lambda endpoint: _of_operations(endpoint) or bool(endpoint.calls),
    "binding-refused": lambda endpoint: endpoint.method == "PATCH" and endpoint.path.startswith("/api/v1/queues/"),
    "wrong-state": lambda endpoint: endpoint.role is not Role.WORK and not _of_operations(endpoint),
    "lease-lost": lambda endpoint: endpoint.role is Role.WORK,
    "store-refused": lambda endpoint: endpoint.role is not None,
    "store-mismatch": lambda endpoint: endpoint.role is not None,
    # Told before anybody knows which endpoint is called.
    "slow-head": lambda endpoint: False,
    "too-many-connections": lambda endpoint: False,
}
"""Which endpoints answer a kind of problem that shares its status with others."""


def _of_operations(endpoint: Served[Any, Any]) -> bool:
    return endpoint.method == "POST" and endpoint.path.startswith("/api/v1/operations")


def problem_kinds(endpoint: Served[Any, Any]) -> list[str]:
    """The kinds of every problem that an endpoint may answer."""
    statuses = problem_statuses(endpoint)
    kinds = [kind for kind, (status, _) in KINDS.items() if status in statuses]
    return [kind for kind in kinds if kind not in _ONLY or _ONLY[kind](endpoint)]


def problem_statuses(endpoint: Served[Any, Any]) -> list[int]:
    """The statuses of every problem that an endpoint may answer."""
    statuses = {*_ALWAYS, *endpoint.problems}
    if endpoint.role is not None:
        statuses.update(_WITH_ROLE)
        if endpoint.method != "GET":
            statuses.add(507)
    if takes_body(endpoint):
        statuses.update(_WITH_BODY)
    if endpoint.variables:
        statuses.add(404)
    return sorted(statuses - set(endpoint.answers))


class _Document:
    def __init__(self, endpoints: Sequence[Served[Any, Any]]) -> None:
        self._endpoints = endpoints
        taken = _types(kind for each in endpoints for kind in (each.query, *_bodies(each).values()))
        given = [Problem, *_types(kind for each in endpoints for kind in each.answers.values())]
        schemas, self._components = describe(taken, given)
        self._known = dict(zip(map(_key, [*taken, *given]), schemas, strict=True))

    def made(self) -> dict[str, Any]:
        paths: dict[str, dict[str, Any]] = {}
        for endpoint in self._endpoints:
            paths.setdefault(endpoint.plain_path, {})[endpoint.method.lower()] = self._operation(endpoint)
        queries = {endpoint.query.__name__ for endpoint in self._endpoints}
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "fairlead",
                "version": __version__,
                "summary": "A priority task queue over HTTP.",
                "description": "Answers are JSON. What goes wrong is answered with a problem document (RFC 9457).",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "tags": self._tags(),
            "paths": paths,
            "components": {
                "schemas": {name: each for name, each in sorted(self._components.items()) if name not in queries},
                "responses": {f"Problem{status}": self._problem(status) for status in _statuses()},
                "securitySchemes": {
                    "key": {"type": "http", "scheme": "bearer", "description": "A key made by `fairlead keys create`."},
                    "session": {
                        "type": "apiKey",
                        "in": "cookie",
                        "name": COOKIE,
                        "description": "The session of a browser, begun with a key. "
                        f"What changes something also needs the header {CSRF_HEADER}.",
                    },
                },
            },
        }

    def _tags(self) -> list[dict[str, str]]:
        groups = dict.fromkeys(endpoint.group for endpoint in self._endpoints)
        return [{"name": group.name, "description": prose(group.about)} for group in groups]

    def _operation(self, endpoint: Served[Any, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {
            "operationId": operation_id(endpoint),
            "tags": [endpoint.group.name],
            "summary": endpoint.summary,
            "description": prose(inspect.getdoc(endpoint.handler) or ""),
            "security": [] if endpoint.role is None else [{"key": []}, {"session": []}],
            "parameters": [*self._variables(endpoint), *self._query(endpoint)],
            "responses": self._responses(endpoint),
            "x-problems": problem_kinds(endpoint),
        }
        if endpoint.role is not None:
            made["x-role"] = str(endpoint.role)
        bodies = _bodies(endpoint)
        if bodies:
            content = {media: self._content(kind, brief=True) for media, kind in bodies.items()}
            made["requestBody"] = {"required": not endpoint.body_optional, "content": content}
        return made

    def _variables(self, endpoint: Served[Any, Any]) -> Iterable[dict[str, Any]]:
        for name in endpoint.variables:
            made = {
                "name": name,
                "in": "path",
                "required": True,
                "description": _NAMED.get(name, f"The {name.replace('_', ' ')}."),
                "schema": {"type": "string"},
            }
            yield {**made, "example": LIKELY[name]} if name in LIKELY else made

    def _query(self, endpoint: Served[Any, Any]) -> Iterable[dict[str, Any]]:
        shape = self._components[endpoint.query.__name__]
        for name, schema in fields(shape).items():
            plain = without_null(schema)
            described = {"description": plain.pop("description")} if "description" in plain else {}
            required = name in shape["required"]
            yield {"name": name, "in": "query", "required": required, **described, "schema": plain}

    def _responses(self, endpoint: Served[Any, Any]) -> dict[str, Any]:
        made = {}
        for status, kind in sorted(endpoint.answers.items()):
            made[str(status)] = {"description": HTTPStatus(status).phrase, **self._answer(kind)}
            if status < 300 and (links := self._links(endpoint, kind)):
                made[str(status)]["links"] = links
        for status in problem_statuses(endpoint):
            made[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
        return made

    def _answer(self, kind: Any) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for each in _choices(kind):
            match each:
                case None:
                    pass
                case Media(type=media, messages=messages):
                    listed = {"x-messages": [self._schema(message) for message in messages]} if messages else {}
                    content[media.partition(";")[0]] = {"schema": {"type": "string"}, **listed}
                case _:
                    content[MEDIA_TYPE if each is Problem else JSON] = self._content(each)
        return {"content": content} if content else {}

    def _content(self, kind: Any, *, brief: bool = False) -> dict[str, Any]:
        schema = self._schema(kind)
        return {"schema": schema, "example": sample(schema, self._components, brief=brief)}

    def _schema(self, kind: Any) -> Schema:
        schemas = [self._known[_key(each)] for each in _choices(kind)]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _links(self, endpoint: Served[Any, Any], kind: Any) -> dict[str, Any]:
        """What can be done next with the ids in an answer, or with those that were asked about."""
        known = {name: f"$request.path.{name}" for name in endpoint.variables} | self._ids(kind)
        return {
            operation_id(target): {"operationId": operation_id(target), **self._link(target, known)}
            for target in self._endpoints
            if target.variables and set(target.variables) <= set(known)
        }

    def _link(self, target: Served[Any, Any], known: Mapping[str, str]) -> dict[str, Any]:
        made: dict[str, Any] = {"parameters": {name: known[name] for name in target.variables}}
        (kind, *_) = [*_bodies(target).values(), None]
        example = None if kind is None else sample(self._schema(kind), self._components, brief=True)
        if isinstance(example, dict) and (common := set(example) & set(known)):
            made["requestBody"] = {**example, **{name: known[name] for name in sorted(common)}}
        return made

    def _ids(self, kind: Any) -> dict[str, str]:
        """Where an answer has its fields, or those of the first in a list of things."""
        found: dict[str, str] = {}
        for each in _choices(kind):
            name = None if each is None or isinstance(each, Media) else referred(self._schema(each))
            members = fields(self._components[name]) if name else {}
            for member, schema in members.items():
                item = referred(schema.get("items") or {})
                for inner in fields(self._components[item]) if item else ():
                    found.setdefault(inner, f"$response.body#/{member}/0/{inner}")
            found |= {member: f"$response.body#/{member}" for member in members}
        return {name: where for name, where in found.items() if name in _LINKED}

    def _problem(self, status: int) -> dict[str, Any]:
        kinds = [kind for kind, (its, _) in KINDS.items() if its == status]
        examples = {
            kind: {
                "value": {
                    "type": f"/docs#{kind}",
                    "title": KINDS[kind][1],
                    "status": status,
                    "detail": "what went wrong; what to do about it",
                }
            }
            for kind in kinds
        }
        titles = "; ".join(KINDS[kind][1] for kind in kinds)
        schema = {"$ref": f"{REFERENCE}Problem"}
        return {"description": titles, "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}}}


def _types(kinds: Iterable[Any]) -> list[Any]:
    """The distinct types among what requests and answers are made of, without those that have no schema."""
    found: dict[Any, Any] = {}
    for kind in kinds:
        for each in _choices(kind):
            named = each.messages if isinstance(each, Media) else (each,)
            found |= {_key(one): one for one in named}
    return [kind for kind in found.values() if kind not in (None, Problem)]


def _bodies(endpoint: Served[Any, Any]) -> Mapping[str, Any]:
    return endpoint.bodies or ({} if endpoint.body is None else {JSON: endpoint.body})


def _choices(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _key(kind: Any) -> Any:
    return kind if isinstance(kind, type) else repr(kind)


def _statuses() -> list[int]:
    return sorted({status for status, _ in KINDS.values()})
