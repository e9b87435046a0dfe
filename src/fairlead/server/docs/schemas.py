"""JSON Schema of the API's types, with the descriptions that their source gives to fields, and examples.

msgspec makes schemas too, but not of types with a default that is Raw, and it knows no descriptions: a field is
described by the string below it, which Python throws away. It is read from the source, once.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect as types

from fairlead.core.task import Priority
from fairlead.wire import words
from fairlead.wire.aliases import ALIASES, WorkerBody

Schema: TypeAlias = dict[str, Any]

REFERENCE: Final = "#/components/schemas/"

_NUMBER_LIMITS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}


def describe(taken: Iterable[Any], given: Iterable[Any] = ()) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """The schema of each type, and the components that they refer to, by name.

    A field with a default may be left out of a request (`taken`). An answer (`given`) has it nevertheless.
    """
    describer = _Describer()
    schemas = [describer.schema(kind) for kind in types.multi_type_info(taken)]
    describer.answers = True
    schemas += [describer.schema(kind) for kind in types.multi_type_info(given)]
    return tuple(schemas), describer.components


class _Describer:
    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self.answers = False
        """Whether what is described is only ever answered: requests are described first."""
        self._known: dict[str, type] = {}

    def schema(self, kind: types.Type) -> Schema:
        """The schema of a type; structs and enums are referred to."""
        match kind:
            case types.Metadata(extra={words.ENUM: enum_class}):
                return self._reference(types.EnumType(enum_class))
            case types.Metadata(type=inner, extra_json_schema=extra):
                return {**self.schema(inner), **(extra or {})}
            case types.StructType() | types.EnumType():
                return self._reference(kind)
            case types.UnionType(types=options):
                return self._union(options)
            case types.LiteralType(values=values):
                return {"enum": list(values)}
            case types.TupleType(item_types=items):
                return {"type": "array", "prefixItems": [self.schema(each) for each in items], "items": False}
            case types.CollectionType(item_type=item):
                limits = _present(kind, {"min_length": "minItems", "max_length": "maxItems"})
                return {"type": "array", "items": self.schema(item), **limits}
            case types.DictType(key_type=types.Metadata(extra={words.ENUM: _}) as key, value_type=value):
                return {**self.schema(types.DictType(key.type, value)), "propertyNames": self.schema(key)}
            case types.DictType(value_type=value):
                return {"type": "object", "additionalProperties": self.schema(value) or True}
            case _:
                return _plain(kind)

    def _union(self, options: Iterable[types.Type]) -> Schema:
        # Null last: what people want to know first is what the value is when there is one.
        ordered = sorted(options, key=lambda option: isinstance(option, types.NoneType))
        return {"anyOf": [self.schema(option) for option in ordered]}

    def _reference(self, kind: types.StructType | types.EnumType) -> Schema:
        name = kind.cls.__name__
        if self._known.setdefault(name, kind.cls) is not kind.cls:
            raise ValueError(f"two types of the API are called {name}; a reader would take one for the other")
        if name not in self.components:
            self.components[name] = {}  # So that a type which refers to itself comes to an end.
            self.components[name].update(self._enum(kind) if isinstance(kind, types.EnumType) else self._struct(kind))
        return {"$ref": REFERENCE + name}

    def _enum(self, kind: types.EnumType) -> Schema:
        described = {"description": prose(kind.cls.__doc__)} if kind.cls.__doc__ else {}
        return {"title": kind.cls.__name__, **described, "enum": [_word(member) for member in kind.cls]}

    def _struct(self, kind: types.StructType) -> Schema:
        described = documents(kind.cls)
        tag = {} if kind.tag_field is None else {kind.tag_field: {"const": kind.tag}}
        properties = {each.encode_name: self._field(each, described) for each in kind.fields}
        aliases = ALIASES.get(kind.cls.__name__, {})
        for alias, name in aliases.items():
            told = properties[name].get("description", "")
            properties[name]["description"] = f"{told} May be called `{alias}`, too.".strip()
        closed = {"additionalProperties": False} if kind.forbid_unknown_fields else {}
        if issubclass(kind.cls, WorkerBody):
            closed = {}  # What is not known is passed over.
        also = {"x-aliases": dict(aliases)} if aliases else {}
        return {
            "title": kind.cls.__name__,
            "description": prose(kind.cls.__doc__ or ""),
            "type": "object",
            "properties": {**tag, **properties},
            "required": [*tag, *(each.encode_name for each in kind.fields if self._always(kind, each))],
            **closed,
            **also,
        }

    def _always(self, kind: types.StructType, each: types.Field) -> bool:
        if each.required:
            return True
        has_default = each.default is not msgspec.NODEFAULT or each.default_factory is not msgspec.NODEFAULT
        return self.answers and has_default and not kind.cls.__struct_config__.omit_defaults

    def _field(self, each: types.Field, described: Mapping[str, str]) -> Schema:
        schema = self.schema(each.type)
        if each.name in described:
            schema["description"] = described[each.name]
        if each.default not in (msgspec.NODEFAULT, msgspec.UNSET):
            schema["default"] = msgspec.json.decode(msgspec.json.encode(each.default))
        return schema


def _word(member: enum.Enum) -> str:
    return member.word if isinstance(member, Priority) else member.value


def _plain(kind: types.Type) -> Schema:
    match kind:
        case types.AnyType() | types.RawType():
            return {}
        case types.NoneType():
            return {"type": "null"}
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType():
            return {"type": "integer", **_present(kind, _NUMBER_LIMITS)}
        case types.FloatType():
            return {"type": "number", **_present(kind, _NUMBER_LIMITS)}
        case types.StrType():
            limits = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
            return {"type": "string", **_present(kind, limits)}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case _:
            raise TypeError(
                f"{type(kind).__name__} has no schema yet; teach fairlead.server.docs.schemas what it is in JSON"
            )


def _present(kind: types.Type, names: Mapping[str, str]) -> Schema:
    return {said: value for name, said in names.items() if (value := getattr(kind, name)) is not None}


def fields(schema: Schema) -> Mapping[str, Schema]:
    """The fields of an object."""
    found: Mapping[str, Schema] = schema.get("properties", {})
    return found


def referred(schema: Schema) -> str | None:
    """The name of the component that a schema is."""
    reference = schema.get("$ref")
    return reference.removeprefix(REFERENCE) if isinstance(reference, str) else None


def without_null(schema: Schema) -> Schema:
    """The schema of a value that can be left out but not be null, such as a query parameter."""
    some = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    options = [option for option in some.pop("anyOf", ()) if option.get("type") != "null"]
    match options:
        case []:
            return some
        case [only]:
            return {**only, **some}
        case _:
            return {"anyOf": options, **some}


def prose(docstring: str) -> str:
    """A docstring with each paragraph on one line."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


@functools.cache
def documents(cls: type) -> Mapping[str, str]:
    """What the source of a class and of those it inherits from says below each field."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__ not in ("builtins", "msgspec"):
            found.update(_documents(base))
    return found


def _documents(cls: type) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # No source, as in a frozen program: fields go without descriptions.
        return {}
    found = {}
    for definition in ast.parse(textwrap.dedent(source)).body:
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for statement, following in itertools.pairwise(body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = prose(text)
                case _:
                    pass
    return found


LIKELY: Final[dict[str, Any]] = {
    "task_id": "019a85f3c2d08000a3d25f1e9c7b4a60",
    "worker_id": "mail-1-019a85f3",
    "operation_id": "019a85f3c2d5f1e9",
    "fingerprint": "9026825fbd1e959f",
    "query": "state:dead_letter error:Timeout",
    "task_type": "send_email",
    "parameters": {"to": "ada@example.org", "template": "welcome"},
    "result": {"message_id": "41c0"},
    "status": "queued",
    "queue": "default",
    "priority": "high",
    "max_retries": 5,
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "host": "mail-1.example.org",
    "version": "1.4.0",
    "lease": "lease-2c9f4b",
    "key": "fl_<id>_<secret>",
    "capabilities": "gpu",
    "capacity": 4,
    "available_capacity": 4,
    "current_load": 1,
    "percent": 40,
    "wait_seconds": 30,
    "schedule": "nightly-report",
    "cron": "0 3 * * *",
    "timezone": "Europe/Berlin",
}
"""What an example says in a field of this name, where its type does not forbid it."""

CHOSEN: Final[dict[str, tuple[str, ...]]] = {
    "SubmitRequest": ("task_type", "parameters", "priority", "max_retries"),
    "RegisterRequest": ("capabilities", "capacity", "host", "version"),
    "PollRequest": ("available_capacity", "wait_seconds"),
    "HeartbeatRequest": ("current_load", "running"),
    "DeregisterRequest": ("running",),
    "ReplayRequest": ("reset_retry_count",),
    "OperationRequest": ("action", "query", "dry_run"),
    "Result": ("task_id", "lease", "status", "result"),
}
"""The fields in the example of a request: those that are required, unless said otherwise here."""

_USUAL: Final = ("completed", "active")
_MOMENT: Final = "2026-03-01T09:30:00.000000Z"


def sample(schema: Schema, components: Mapping[str, Schema], *, brief: bool = False) -> Any:
    """A value that a schema allows; the brief form has only the fields that a request must have."""
    return _Sampler(components, brief).value(schema, "")


class _Sampler:
    def __init__(self, components: Mapping[str, Schema], brief: bool) -> None:
        self._components = components
        self._brief = brief

    def value(self, schema: Schema, name: str) -> Any:
        component = referred(schema)
        if component is not None:
            return self._of_component(component, name)
        if schema.get("examples"):
            return schema["examples"][0]
        if "enum" in schema:
            usual = (word for word in (LIKELY.get(name), *_USUAL) if word in schema["enum"])
            return next(usual, schema["enum"][0])
        if "anyOf" in schema:
            return self._of_options(schema["anyOf"], name)
        match schema.get("type"):
            case "object" if fields(schema):
                return self._object(schema, schema.get("required", ()) if self._brief else fields(schema))
            case "object":
                return LIKELY.get(name, self._mapping(schema))
            case "array":
                return [self.value(schema["items"], name)] if schema.get("items") else []
            case None:
                return LIKELY.get(name, {})
            case kind:
                return self._plain(schema, kind, name)

    def _of_component(self, component: str, name: str) -> Any:
        schema = self._components[component]
        if self._brief and component in CHOSEN:
            return self._object(schema, CHOSEN[component])
        return self.value(schema, name)

    def _of_options(self, options: list[Schema], name: str) -> Any:
        # Null is the shortest truth about most fields that may be null; those with a likely value show it.
        if any(option.get("type") == "null" for option in options) and name not in LIKELY:
            return None
        return self.value(options[0], name)

    def _object(self, schema: Schema, names: Any) -> dict[str, Any]:
        return {name: self.value(fields(schema)[name], name) for name in fields(schema) if name in names}

    def _mapping(self, schema: Schema) -> dict[str, Any]:
        values = schema.get("additionalProperties")
        names = schema.get("required", ("default",))
        return {name: self.value(values, "") for name in names} if isinstance(values, dict) and values else {}

    def _plain(self, schema: Schema, kind: str, name: str) -> Any:
        match kind:
            case "string":
                return _text(schema, name)
            case "integer" | "number" if isinstance(LIKELY.get(name), int):
                return LIKELY[name]
            case "integer" | "number":
                least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
                return schema["default"] if schema.get("default") is not None else max(least, 0)
            case "boolean":
                return schema.get("default", False)
            case _:
                return None


def _text(schema: Schema, name: str) -> str:
    if isinstance(LIKELY.get(name), str):
        return str(LIKELY[name])
    if schema.get("format") == "date-time" or name.endswith("_at"):
        return _MOMENT
    return schema.get("default") or name.replace("_", "-") or "text"
