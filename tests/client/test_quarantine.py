"""What was set aside, from an app behind a server: the same calls as on a store."""

from __future__ import annotations

import logging

import msgspec
import pytest

from fairlead.core.errors import NotInQuarantine, RecordUnreadable, RestoreRefused
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from tests.client.serving import Port


async def test_it_is_listed_restored_and_discarded(port: Port) -> None:
    desk = port.app().quarantine
    await port.store.put("queue", "a", b"?")
    await port.store.put("queue", "b", b"?")
    await port.engine.queues.all()
    assert [each.key for each in await desk.all()] == ["queue/a", "queue/b"]
    assert await desk.get("queue/a") == await port.engine.quarantine.get("queue/a")
    with pytest.raises(RestoreRefused, match="still cannot be decoded"):
        await desk.restore("queue/a")
    await desk.restore("queue/a", {"value": msgspec.msgpack.encode(QueueSettings(bound=7))})
    assert (await port.engine.queues.get("a")).bound == 7
    await desk.discard("queue/b")
    assert await desk.all() == []
    for missing in ("queue/b", "nonsense"):
        with pytest.raises(NotInQuarantine):
            await desk.get(missing)


async def test_a_worker_behind_a_server_leaves_a_schedule_that_cannot_be_read_as_it_is(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = Schedule(name="nightly", cron="* * * * *", submission=Submission(type="t"))
    await port.store.put("schedule", "nightly", b"?")
    schedules = (await port.app().connection().engine()).schedules
    with caplog.at_level(logging.WARNING):
        await schedules.declare([schedule])
    assert "schedule nightly does not fire" in caplog.text
    with pytest.raises(RecordUnreadable):
        await schedules.get("nightly")
    assert (await schedules.put(schedule)).created
