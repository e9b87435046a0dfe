"""Schemas in words, for the pages that people read."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from fairlead.server.docs.schemas import Schema, referred

BASE: Final = "http://127.0.0.1:8420"

_LONG: Final = 100
_LIMITS: Final = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
}
_PLAIN: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}
_FORMATS: Final = {"date-time": "moment"}


class Wording:
    """Says what a schema allows; how a name or a literal value looks is up to the page."""

    def __init__(
        self, link: Callable[[str], str], code: Callable[[str], str], escape: Callable[[str], str] = str
    ) -> None:
        self._link = link
        self._code = code
        self._escape = escape

    def kind(self, schema: Schema) -> str:
        """The type, such as `list of text` or `whole number or null`."""
        name = referred(schema)
        if name is not None:
            return self._link(name)
        if "anyOf" in schema:
            return " or ".join(map(self.kind, schema["anyOf"]))
        if "enum" in schema:
            return " or ".join(self._literal(value) for value in schema["enum"])
        match schema.get("type"):
            case "array":
                return f"list of {self.kind(schema['items'])}" if schema.get("items") else "list"
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                name = self.kind(schema["propertyNames"]) if "propertyNames" in schema else "name"
                return f"object of {self.kind(schema['additionalProperties'])} by {name}"
            case "string" if "format" in schema:
                return self._escape(_FORMATS.get(schema["format"], str(schema["format"])))
            case None:
                return "JSON"
            case kind:
                return self._escape(_PLAIN.get(str(kind), str(kind)))

    def content(self, content: Mapping[str, Any]) -> str:
        """The type of an answer; of a stream, also the types in it."""
        messages = ", ".join(map(self.kind, content.get("x-messages", ())))
        return f"{self.kind(content['schema'])} of {messages}" if messages else self.kind(content["schema"])

    def limits(self, schema: Schema) -> str:
        """What a value must be beyond its type, such as `at least 0, at most 1`."""
        said = [self._escape(words.format(_number(schema[key]))) for key, words in _LIMITS.items() if key in schema]
        if "pattern" in schema:
            said.append(f"matches {self._code(schema['pattern'])}")
        inner = [self.limits(option) for option in schema.get("anyOf", ())]
        if isinstance(schema.get("items"), dict) and (each := self.limits(schema["items"])):
            inner.append(f"each {each}")
        return "; ".join(each for each in (", ".join(said), *inner) if each)

    def default(self, schema: Schema) -> str:
        """The value of a field that is left out; nothing when that is null."""
        value = schema.get("default")
        return "" if value is None else self._literal(value)

    def _literal(self, value: object) -> str:
        return self._code(json.dumps(value, ensure_ascii=False))


def curl(method: str, path: str, operation: Mapping[str, Any]) -> str:
    """A request for an operation that can be pasted into a shell."""
    for parameter in operation["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter.get("example", parameter["name"])))
    parts = ["curl", *(() if method == "GET" else ("-X", method)), shlex.quote(BASE + path)]
    lines = [" ".join(parts)]
    if "x-role" in operation:
        lines.append('-H "Authorization: Bearer $FAIRLEAD_KEY"')
    if "requestBody" in operation:
        media, content = next(iter(operation["requestBody"]["content"].items()))
        lines.append(f"-H 'Content-Type: {media}'")
        short = json.dumps(content["example"], ensure_ascii=False)
        shown = short if len(short) < _LONG else json.dumps(content["example"], indent=2, ensure_ascii=False)
        lines.append(f"-d {shlex.quote(shown)}")
    return " \\\n  ".join(lines)


def _number(value: float) -> str:
    return f"{value:,.10g}"
