"""`fairlead types`: what workers have published, by people and by scripts."""

from __future__ import annotations

import pytest

from fairlead.core.errors import InvalidTask
from fairlead.core.instant import MINUTE
from fairlead.core.submission import Declaration, Submission, check_declaration
from fairlead.core.task import OwnRetention, Priority
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder

BILL = Declaration(
    submission=Submission(
        type="bill",
        queue="billing",
        priority=Priority.HIGH,
        tags=("money",),
        retention=OwnRetention(completed=MINUTE),
    ),
    schema=b'{"type":"object"}',
    worker="host-1",
)
KEYED = Declaration(submission=Submission(type="keyed"), computed=("concurrency_key",), worker="host-1")


def test_types_are_listed_shown_and_removed(folder: Folder) -> None:
    folder.submit("echo")
    assert "no task types are published" in folder.quick("types", "list").out
    run_inline(folder.engine().types.declare([BILL, KEYED]))

    header, bill, keyed = folder.quick("types", "list").out.splitlines()
    assert header.split() == ["TYPE", "QUEUE", "OPTIONS", "PUBLISHED"]
    assert bill.split()[:5] == [
        "bill",
        "billing",
        "priority=high,",
        'tags=["money"],',
        'retention={"completed_seconds":60.0}',
    ]
    assert keyed.split()[:3] == ["keyed", "default", "-"]
    assert folder.quick("types", "show", "bill").out.splitlines()[1:] == [
        "queue: billing",
        "priority: high",
        'tags: ["money"]',
        'retention: {"completed_seconds":60.0}',
        "parameters:",
        "{",
        '  "type": "object"',
        "}",
    ]
    assert folder.quick("types", "show", "keyed").out.splitlines()[2:] == [
        "concurrency_key: made of a call's arguments; a submit by name has to say it itself",
        "parameters: no schema is known",
    ]
    assert folder.quick("types", "show", "bill", "--json").json["options"]["tags"] == ["money"]
    assert folder.quick("types", "remove", "bill").out == "task type bill is not published any more\n"
    assert "task type 'bill' is not published" in folder.quick("types", "show", "bill").error


@pytest.mark.parametrize("schema", [b"5", b"[]", b'"text"', b"null"])
def test_a_schema_is_an_object(schema: bytes) -> None:
    with pytest.raises(InvalidTask, match="parameters_schema is not a JSON object"):
        check_declaration(Declaration(submission=Submission(type="bill"), schema=schema))
