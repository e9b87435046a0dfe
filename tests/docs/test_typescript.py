"""The dashboard's types of the API are what the OpenAPI document says."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.server.docs.openapi import document
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.docs.typescript import module, type_of
from tests.docs.reading import ROOT

FILE = ROOT / "dashboard" / "src" / "api" / "schema.ts"


def test_the_file_is_up_to_date() -> None:
    command = f"python -m fairlead.server.docs.typescript > {FILE.relative_to(ROOT)}"

    assert FILE.read_text("utf-8") == module(document(ENDPOINTS)), f"run {command}"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, "unknown"),
        ({"type": "integer", "minimum": 1}, "number"),
        ({"$ref": "#/components/schemas/Task"}, "Task"),
        ({"const": "strict"}, '"strict"'),
        ({"enum": ["a", 1]}, '"a" | 1'),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, "number | null"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]}, "[string, boolean]"),
        ({"type": "object"}, "Record<string, unknown>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "Record<string, number>"),
        (
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "propertyNames": {"$ref": "#/components/schemas/State"},
            },
            "Partial<Record<State, number>>",
        ),
        (
            {
                "type": "object",
                "additionalProperties": {"type": "integer"},
                "propertyNames": {"$ref": "#/components/schemas/State"},
                "required": ["queued"],
            },
            "Record<State, number>",
        ),
    ],
)
def test_a_schema_has_its_type(schema: dict[str, Any], expected: str) -> None:
    assert type_of(schema) == expected


def test_a_shape_has_its_fields_with_their_descriptions() -> None:
    task = {
        "description": "A task.",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, "tag": {"type": "string", "description": "A word */."}},
    }

    assert module({"components": {"schemas": {"Task": task}}, "paths": {}}).splitlines()[2:8] == [
        "/** A task. */",
        "export interface Task {",
        "  id: string;",
        "  /** A word *\\/. */",
        "  tag?: string;",
        "}",
    ]


@pytest.mark.parametrize(("name", "constant"), [("WorkerState", "WORKER_STATES"), ("Priority", "PRIORITIES")])
def test_the_words_of_an_enum_are_a_constant_too(name: str, constant: str) -> None:
    written = module({"components": {"schemas": {name: {"enum": ["a", "b"]}}}, "paths": {}})

    assert (
        f'export const {constant} = ["a", "b"] as const;\nexport type {name} = (typeof {constant})[number];' in written
    )


def test_an_endpoint_has_what_it_takes_and_answers() -> None:
    json = {"application/json": {"schema": {"type": "integer"}}}
    operation = {
        "summary": "Do it",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "limit", "in": "query", "required": False, "schema": {"type": "integer"}},
        ],
        "requestBody": {"required": False, "content": json},
        "responses": {"200": {"content": json}, "201": {"content": json}, "404": {"$ref": "Problem"}},
    }
    text = {"summary": "Read", "parameters": [], "responses": {"200": {"content": {"text/plain": {}}}}}
    silent = {"summary": "End", "parameters": [], "responses": {"204": {}}}
    paths = {"/do/{id}": {"post": operation}, "/text": {"get": text, "delete": silent}}

    assert module({"components": {"schemas": {}}, "paths": paths}).splitlines()[3:] == [
        "export interface Endpoints {",
        "  /** Do it */",
        '  "POST /do/{id}": {',
        "    request: { path: { id: string }; query?: { limit?: number }; body?: number };",
        "    answer: number;",
        "  };",
        "  /** Read */",
        '  "GET /text": {',
        "    request: Record<string, never>;",
        "    answer: string;",
        "  };",
        "  /** End */",
        '  "DELETE /text": {',
        "    request: Record<string, never>;",
        "    answer: undefined;",
        "  };",
        "}",
    ]
