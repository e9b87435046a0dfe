"""What was set aside, over HTTP."""

from __future__ import annotations

import base64

import msgspec

from fairlead.core.queues.queue import QueueSettings
from fairlead.core.tenancy import Role
from tests.server.doors import Doors

PATH = "/api/v1/quarantine"
SETTINGS = msgspec.msgpack.encode(QueueSettings(bound=7))


async def damaged() -> Doors:
    """A server on a store in which a queue's settings are damaged."""
    doors = Doors()
    await doors.store.put("queue", "default", b"?")
    assert (await doors.call("GET", "/api/v1/queues/default")).json["paused"]
    return doors


async def test_it_is_listed_shown_and_restored() -> None:
    doors = await damaged()
    (listed,) = (await doors.call("GET", PATH)).json["records"]
    assert (listed["record"], listed["sizes"]) == ("queue/default", {"value": 1})
    shown = (await doors.call("GET", f"{PATH}/queue/default")).json
    assert base64.b64decode(shown["parts"]["value"]) == b"?"
    queue = (await doors.call("GET", "/api/v1/queues/default")).json
    assert (queue["paused"], queue["unreadable"]) == (True, True)
    refused = await doors.call("POST", f"{PATH}/queue/default/restore")
    assert refused.status == 409 and refused.json["type"].endswith("restore-refused")
    for odd in ("!", "é"):
        wrong = await doors.call("POST", f"{PATH}/queue/default/restore", json={"parts": {"value": odd}})
        assert wrong.status == 422
    parts = {"value": base64.b64encode(SETTINGS).decode()}
    assert (await doors.call("POST", f"{PATH}/queue/default/restore", json={"parts": parts})).status == 200
    assert (await doors.call("GET", "/api/v1/queues/default")).json["settings"]["bound"] == 7
    assert (await doors.call("GET", PATH)).json == {"records": []}


async def test_it_is_discarded() -> None:
    doors = await damaged()
    assert (await doors.call("DELETE", f"{PATH}/queue/default")).status == 200
    gone = await doors.call("DELETE", f"{PATH}/queue/default")
    assert (gone.status, gone.json["field"]) == (404, "record")
    assert not (await doors.call("GET", "/api/v1/queues/default")).json["paused"]


async def test_a_record_that_cannot_be_read_is_no_outage() -> None:
    doors = Doors()
    await doors.store.put("schedule", "nightly", b"?")
    refused = await doors.call("GET", "/api/v1/schedules/nightly")
    assert (refused.status, refused.json["type"].partition("#")[2]) == (500, "record-unreadable")
    assert "fairlead quarantine show schedule/nightly" in refused.json["detail"]
    assert (await doors.call("GET", "/api/v1/schedules")).json["schedules"] == []


async def test_it_is_the_business_of_who_answers_for_all_tenants() -> None:
    doors = await damaged()
    bound = await doors.key(Role.ADMIN, tenant="acme")
    reader = await doors.key(Role.READ)
    for key in (bound, reader):
        for method, path in (("GET", PATH), ("GET", f"{PATH}/queue/default"), ("DELETE", f"{PATH}/queue/default")):
            assert (await doors.call(method, path, key=key.text)).status == 403


async def test_it_is_counted() -> None:
    doors = await damaged()
    page = (await doors.call("GET", "/metrics")).body.decode()
    assert 'fairlead_quarantined_records{kind="queue"} 1' in page
    assert (await doors.call("GET", "/api/v1/queue/stats")).json["quarantined"] == {"queue": 1}
