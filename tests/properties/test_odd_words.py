"""Words come from anywhere, also as invalid Unicode: file names, for one."""

from pathlib import Path

from fairlead.admin.engine import AdminEngine
from fairlead.core.identity import WorkerId
from fairlead.core.submission import Submission
from fairlead.core.task import Progress
from fairlead.storage.values import Pulse
from fairlead.testing.builders import a_beat
from fairlead.testing.steps import opened


async def test_a_progress_report_never_costs_the_other_tasks_their_heartbeat(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/tasks.db") as store:
        engine = AdminEngine(store)
        await engine.submit_many([Submission(type="work")] * 2)
        first, second = await engine.claim(WorkerId("worker-1"), ["default"], limit=2)
        beats = [a_beat(first, progress=Progress(percent=1, message="reading \udcff.txt")), a_beat(second)]
        assert await engine.heartbeat(beats) == [Pulse.HELD, Pulse.HELD]
