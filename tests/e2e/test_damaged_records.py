"""Records are damaged under processes that run, and before they start: none of them ends, and tasks go on."""

from __future__ import annotations

from typing import Final

import httpx
import pytest

from fairlead.core.health.quarantine import QUARANTINE
from fairlead.core.task import State
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.open import open_store
from fairlead.storage.protocol import Store
from tests.e2e import fleet
from tests.e2e.harbour import ServerProcess
from tests.e2e.processes import Yard

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

KINDS: Final = (
    "circuit", "feed", "key", "lost", "operation", "promoted", "schedule", "session", "throughput", "worker",
)  # fmt: skip


def damage(store: Store) -> None:
    """Damage every record there is but those of the queue that is worked on, and add some of each kind."""
    for kind in KINDS:
        for number, record in enumerate(run_inline(store.scan(kind))):
            run_inline(store.put(kind, record.name, (b"", b"\xc1" * 9, b"\xa2\xff\xfe")[number % 3]))
        run_inline(store.put(kind, f"{kind}-1", b"\x91" * 50_000))
    run_inline(store.put("queue", "elsewhere", b"?"))
    for bell in ("queues_changed", "schedules_changed", "operations_changed"):
        run_inline(store.put(bell, bell, b""))


@pytest.mark.parametrize("store_url", ["sqlite", "redis", "postgresql"], indirect=True)
def test_processes_outlive_every_damaged_record(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    store = run_inline(open_store(yard.store, blocking=True))
    damage(store)
    server = ServerProcess(yard.folder, yard.store)
    try:
        worker = yard.hire()
        for number in range(3):
            fleet.work.submit_sync(number)
            yard.until_all_ended()
            damage(store)
            refused = httpx.get(f"{server.url}/api/v1/queues", timeout=30)
            assert refused.status_code == 401, "a key that cannot be read still counts"
        assert yard.counts()[State.COMPLETED] == 3
        assert worker.running and server.process.poll() is None
        aside = {record.name.partition("/")[0] for record in run_inline(store.scan(QUARANTINE))}
        assert aside >= {"circuit", "key", "schedule", "queue", "worker"}
        told = worker.log + server.log_file.read_text()
        assert "Traceback" not in told
        # Whoever meets it first tells of it, and this process looks as well.
        told += caplog.text
        for key in ("schedule/schedule-1", "queue/elsewhere", "key/key-1"):
            assert f"{key} is damaged and was moved to quarantine" in told
    finally:
        server.end()
        run_inline(store.close())
