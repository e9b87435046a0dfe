"""`quarantine` on the command line."""

from __future__ import annotations

import json

import pytest

from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder


@pytest.fixture
def damaged(folder: Folder) -> Folder:
    """A folder whose store has a schedule and a queue's settings that cannot be decoded."""
    folder.ok("schedule", "add", "nightly", "0 3 * * *", "echo")
    engine = folder.engine()
    (record,) = run_inline(engine.store.scan("schedule"))
    run_inline(engine.store.put("schedule", "nightly", record.value.replace(b"0 3 * * *", b"0 3 * * x")))
    run_inline(engine.store.put("queue", "default", b"?"))
    return folder


def test_what_was_set_aside_is_listed_and_shown(damaged: Folder) -> None:
    assert damaged.quick("schedule", "list").code == 0 and damaged.quick("queues", "list").code == 0
    listed = damaged.quick("quarantine", "list").out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["queue/default", "schedule/nightly"]
    (queue, schedule) = damaged.quick("quarantine", "list", "--json").lines
    assert (queue["record"], queue["sizes"]) == ("queue/default", {"value": 1})
    shown = damaged.quick("quarantine", "show", "schedule/nightly").out
    assert "InvalidSchedule" in shown and "fairlead quarantine restore schedule/nightly --from" in shown
    whole = damaged.quick("quarantine", "show", "schedule/nightly", "--json").json
    assert set(whole) == {*schedule, "parts"}
    assert damaged.quick("quarantine", "show", "schedule/weekly").code == 1
    queues = damaged.quick("queues", "list").out
    assert "unreadable" in queues
    assert "fairlead quarantine show queue/default" in damaged.quick("queues", "show", "default").out
    assert "in quarantine: 1 queue, 1 schedule" in damaged.quick("stats").out
    assert damaged.quick("doctor").code == 1


def test_listings_say_what_they_cannot_show(damaged: Folder) -> None:
    damaged.quick("schedule", "list")
    listed = damaged.quick("schedule", "list").out
    assert "1 cannot be read and do not fire; `fairlead quarantine list` shows them" in listed
    made = damaged.quick("keys", "create", "ci", "--roles", "read", "--json").json
    run_inline(damaged.engine().store.put("key", made["id"], b"?"))
    keys = damaged.quick("keys", "list").out
    assert f"{made['id']} cannot be read" in keys and "no keys" not in keys
    assert f"fairlead quarantine show key/{made['id']}" in keys


def test_what_is_mended_in_a_file_is_restored(damaged: Folder) -> None:
    import base64

    damaged.quick("schedule", "list")
    exported = json.loads(damaged.quick("quarantine", "export", "schedule/nightly").out)
    refused = damaged.quick("quarantine", "restore", "schedule/nightly")
    assert refused.code == 1 and "still cannot be decoded" in refused.error
    value = base64.b64decode(exported["parts"]["value"]).replace(b"0 3 * * x", b"0 3 * * *")
    exported["parts"]["value"] = base64.b64encode(value).decode()
    damaged.write("mended.json", json.dumps(exported))
    restored = damaged.quick("quarantine", "restore", "schedule/nightly", "--from", "mended.json")
    assert (restored.code, restored.out) == (0, "schedule/nightly is back in its place\n")
    assert "nightly" in damaged.quick("schedule", "list").out
    damaged.write("odd.json", "{}")
    for odd in ("odd.json", "nowhere.json"):
        assert damaged.quick("quarantine", "restore", "queue/default", "--from", odd).code == 2


def test_nothing_is_discarded_without_a_word(damaged: Folder) -> None:
    damaged.quick("queues", "list")
    assert "pass --yes" in damaged.quick("quarantine", "discard", "queue/default").error
    assert damaged.quick("quarantine", "discard").code == 2
    done = damaged.quick("quarantine", "discard", "queue/default", "queue/other", "--yes", "--json")
    assert done.code == 1
    assert [each["record"] for each in done.json["records"]] == ["queue/default"]
    assert [each["record"] for each in done.json["errors"]] == ["queue/other"]
    assert damaged.quick("queues", "list").out.startswith("no queues")
