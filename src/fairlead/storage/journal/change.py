"""Changes to tasks that are not in the hot store: they are made in the journal, and what waits again is put back."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.core.identity import TaskId
from fairlead.core.task import State, Task
from fairlead.storage.journal.journal import Journal, Rows, standing_after_loss
from fairlead.storage.journal.outbox import HotStore
from fairlead.storage.journal.rebuild import put_back
from fairlead.storage.steps import ends, judged
from fairlead.storage.values import Change, Verdict


async def apply_in_journal(hot: HotStore, journal: Journal, changes: Sequence[Change]) -> list[Verdict]:
    """How each change was judged: by the journal, or by the hot store if its task has come back there meanwhile."""
    ids = list(dict.fromkeys(change.id for change in changes))

    ended: dict[TaskId, State] = {}

    async def work(rows: Rows) -> tuple[list[Verdict | None], list[Task]]:
        back = {task.id for task in await hot.get(ids) if task is not None}
        stored: dict[TaskId, Task | None] = dict(await rows.get(ids))
        touched: dict[TaskId, Task | None] = {}
        verdicts: list[Verdict | None] = []
        for change in changes:
            if change.id in back:
                verdicts.append(None)
                continue
            task = stored.get(change.id)
            verdict = judged(change, None if task is None else task.status)
            if task is not None and verdict is Verdict.APPLIED:
                changed = None if change.status is None else Task(task.spec, change.status)
                stored[change.id] = touched[change.id] = changed
                if ends(task.status, change.status):
                    ended[change.id] = State.CANCELLED if changed is None else changed.state
            verdicts.append(verdict)
        if replaced := [task for task in touched.values() if task is not None]:
            await rows.update(sorted(replaced, key=lambda task: task.id), accepted=True)
        if removed := [task_id for task_id, task in touched.items() if task is None]:
            await rows.remove(removed)
        return verdicts, [task for task in replaced if task.state.waiting]

    verdicts, revived = await journal.alone(work)
    await put_back(hot, revived, await standing_after_loss(journal, revived))
    last = bool(ended) and await hot.count_ends(ended)
    again = iter(
        await hot.apply([c for c, verdict in zip(changes, verdicts, strict=True) if verdict is None])
        if None in verdicts
        else []
    )
    return [
        next(again)
        if verdict is None
        else Verdict.RELEASED
        if last and verdict is Verdict.APPLIED and change.id in ended
        else verdict
        for change, verdict in zip(changes, verdicts, strict=True)
    ]
