"""The OpenAPI document says what the endpoints and their types say."""

from __future__ import annotations

import re
from typing import Annotated, Any

import jsonschema_rs
import msgspec
import pytest
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from fairlead.core.task import Priority, State
from fairlead.server.docs.openapi import document, operation_id, problem_statuses
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.docs.schemas import describe, without_null
from fairlead.server.endpoint import Served
from fairlead.server.http.problems import EXPLAINED, KINDS
from fairlead.wire.endpoint import Media, Problem
from fairlead.wire.words import ENUM, ByPriority
from tests.server.validating import DOCUMENT, validator_of

each_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=operation_id)


class Inner(Struct):
    """Inside."""

    note: str
    """What it
    says."""


class Outer(Struct, kw_only=True, forbid_unknown_fields=True):
    """A shape
    with everything.

    And more.
    """

    count: Annotated[int, Meta(ge=1, le=5)] = 2
    """How many."""
    body: Raw = Raw(b'{"a":[1]}')
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    named: dict[str, float]


class Derived(Outer):
    """Inherits."""

    count: Annotated[int, Meta(ge=1, le=5)] = 3


def operation(endpoint: Served[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][endpoint.plain_path][endpoint.method.lower()]
    return found


def test_a_schema_has_limits_defaults_and_the_descriptions_below_fields() -> None:
    (schema,), components = describe([Outer])

    assert schema == {"$ref": "#/components/schemas/Outer"}
    assert components["Outer"] == {
        "title": "Outer",
        "description": "A shape with everything.\n\nAnd more.",
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many.", "default": 2},
            "body": {"default": {"a": [1]}},
            "inner": {"anyOf": [{"$ref": "#/components/schemas/Inner"}, {"type": "null"}], "default": None},
            "inners": {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}, "default": []},
            "named": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["named"],
        "additionalProperties": False,
    }
    assert components["Inner"]["properties"]["note"]["description"] == "What it says."


def test_a_field_keeps_the_description_that_it_inherits() -> None:
    _, components = describe([Derived])

    assert components["Derived"]["properties"]["count"]["description"] == "How many."


class Answered(Struct):
    """What only an answer has."""

    state: Annotated[str, Meta(extra={ENUM: State})] = "queued"
    warning: str | UnsetType = UNSET
    counts: ByPriority[int] = {}


def test_an_answer_has_every_field_that_is_not_left_out_on_purpose() -> None:
    (_, answered), components = describe([Outer], [Answered])

    assert answered == {"$ref": "#/components/schemas/Answered"}
    assert components["Answered"]["required"] == ["state", "counts"]
    assert components["Outer"]["required"] == ["named"]


def test_an_answer_that_leaves_out_its_defaults_need_not_have_them() -> None:
    _, components = describe([], [Problem])

    assert components["Problem"]["required"] == ["type", "title", "status", "detail"]


def test_a_closed_set_of_words_has_its_name() -> None:
    _, components = describe([], [Answered])
    fields = components["Answered"]["properties"]

    assert fields["state"] == {"$ref": "#/components/schemas/State", "default": "queued"}
    assert components["State"]["enum"] == [state.value for state in State]
    assert fields["counts"]["propertyNames"] == {"$ref": "#/components/schemas/Priority"}
    assert fields["counts"]["required"] == components["Priority"]["enum"] == [each.word for each in Priority]


def test_two_types_of_one_name_are_refused() -> None:
    other = msgspec.defstruct("Inner", [("a", int)])

    with pytest.raises(ValueError, match="two types of the API are called Inner"):
        describe([Inner, other])


def test_a_parameter_that_may_be_left_out_is_not_null() -> None:
    schema = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "description": "x"}

    assert without_null(schema) == {"type": "integer", "description": "x"}


def test_the_document_is_valid() -> None:
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **DOCUMENT["components"]})
    for schema in DOCUMENT["components"]["schemas"].values():
        validator_of(schema)


def test_every_reference_leads_to_something() -> None:
    text = msgspec.json.encode(DOCUMENT).decode()
    for kind, name in set(re.findall(r'"#/components/(\w+)/(\w+)"', text)):
        assert name in DOCUMENT["components"][kind]


def test_operations_have_distinct_names() -> None:
    names = [operation_id(endpoint) for endpoint in ENDPOINTS]

    assert sorted(set(names)) == sorted(names)


@each_endpoint
def test_an_endpoint_is_described(endpoint: Served[Any, Any]) -> None:
    said = operation(endpoint)

    assert said["summary"] and said["description"]
    assert {int(status) for status in said["responses"]} == {*endpoint.answers, *problem_statuses(endpoint)}
    assert bool(said["security"]) == (endpoint.role is not None)
    assert ("requestBody" in said) == (endpoint.body is not None or bool(endpoint.bodies))


@each_endpoint
def test_every_parameter_of_an_endpoint_is_there(endpoint: Served[Any, Any]) -> None:
    said = {(each["in"], each["name"]) for each in operation(endpoint)["parameters"]}
    query = [("query", field.encode_name) for field in msgspec.structs.fields(endpoint.query)]

    assert said == {*query, *(("path", name) for name in endpoint.variables)}


@each_endpoint
def test_examples_are_what_their_schema_allows(endpoint: Served[Any, Any]) -> None:
    said = operation(endpoint)
    bodies = list(said.get("requestBody", {}).get("content", {}).values())
    answers = [content for each in said["responses"].values() for content in each.get("content", {}).values()]
    for content in bodies + answers:
        if "example" in content:
            validator_of(content["schema"]).validate(content["example"])


@each_endpoint
def test_the_example_of_a_request_can_be_read(endpoint: Served[Any, Any]) -> None:
    for content in operation(endpoint).get("requestBody", {}).get("content", {}).values():
        if endpoint.body is not None:
            msgspec.json.decode(msgspec.json.encode(content["example"]), type=endpoint.body)


@each_endpoint
def test_links_lead_to_operations_and_fill_their_paths(endpoint: Served[Any, Any]) -> None:
    targets = {operation_id(each): set(each.variables) for each in ENDPOINTS}
    for answer in operation(endpoint)["responses"].values():
        for link in answer.get("links", {}).values():
            assert targets[link["operationId"]] <= set(link["parameters"])


def test_an_answer_that_is_not_json_says_what_it_is() -> None:
    async def handler(call: Any) -> Any:
        """Say hello."""

    plain = Served(
        method="GET", path="/hello", handler=handler, summary="Hello", role=None, answers={200: Media("text/plain")}
    )
    said = document([plain])["paths"]["/hello"]["get"]["responses"]["200"]

    assert said == {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}


def test_every_kind_of_problem_is_explained() -> None:
    assert list(EXPLAINED) == list(KINDS)
