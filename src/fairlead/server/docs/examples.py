"""Example values for the documents: made from schemas, with a likely value for each field by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairlead.server.docs.schemas import Schema, fields, referred

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
