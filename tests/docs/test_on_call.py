"""The pages for whoever is on call: every command in them is run as it is written there, on a store with some trouble.

Names stand for what the reader has: they are exchanged for what this store has. What asks whether it is meant is told
so with `--yes`; what runs until it is stopped is only read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from fairlead.admin.engine import AdminEngine
from fairlead.cli.program import program
from fairlead.core.dead_letters import fingerprint_of
from fairlead.core.identity import WorkerId
from fairlead.core.instant import DAY, MINUTE
from fairlead.core.operation import Action, NewOperation
from fairlead.core.query.parser import parse_query
from fairlead.core.schedule import Schedule
from fairlead.core.submission import Submission
from fairlead.core.task import Failure, Task
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder, folders
from tests.docs.reading import ROOT, blocks, name, prose
from tests.engine.stocking import a_dead_letter

HOW_TO: Final = ROOT / "docs" / "how-to"
PAGES: Final = [
    HOW_TO / page
    for page in (
        "a-queue-that-does-not-move.md",
        "dead-letters.md",
        "drain-a-node.md",
        "schedule-tasks.md",
        "examine-with-the-doctor.md",
    )
]
OPERATION: Final = "019a85f3c2d5f1e9"
FINGERPRINT: Final = "9026825fbd1e959f"
WORKER: Final = "node-7-3f9a1c02"
ERROR: Final = Failure(type="KeyError", message="template 'a' is missing")
ONLY_READ: Final = {
    "fairlead worker app.tasks:app --queues emails",
    "fairlead migrate",
}
"""Commands that do not end, or that this store has no use for."""
ONLY_NAMED: Final = {"fairlead replay", "fairlead workers show", "fairlead schedule show", "fairlead schedule preview"}
"""Commands that the text names without saying of what."""


def commands(page: Path) -> list[str]:
    """Every whole command of a page, in its order but for those in the text, which come last."""
    lines = [line for block in blocks(page) for line in block.body.splitlines()]
    shown = [line.removeprefix("$ ") for line in lines if line.removeprefix("$ ").startswith("fairlead ")]
    spans = re.findall(r"`(fairlead [^`]+)`", prose(page))
    # What a command does may stand beside it.
    return [re.split(r" {2,}", line)[0].strip() for line in shown] + [" ".join(span.split()) for span in spans]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    yield from folders(tmp_path)


class Reader:
    """Someone with a store of their own, in which there is some trouble."""

    def __init__(self, folder: Folder) -> None:
        folder.submit("send_email", "--queue", "emails")
        self._engine: AdminEngine = folder.engine()

    def own(self, command: str) -> list[str]:
        """A command with this reader's names in it, and a store in which it makes sense."""
        run_inline(self._engine.worker_records.register(WorkerId(WORKER), queues=["emails"], capacity=1, host="node-7"))
        dead = self._dead_letters()
        command = command.replace(FINGERPRINT, fingerprint_of(ERROR)).replace("ID …", "ID")
        if "operations" in command:
            command = re.sub(rf"{OPERATION}|ID", self._operation(), command)
        words = shlex.split(re.sub(r"\bID\b", dead.id, command).replace("NAME", "nightly"))[1:]
        if words[0] == "schedule" and words[1] not in ("add", "list"):
            self._schedule(words[2])
        asks = words[:2] == ["queues", "purge"] or ("-q" in words and {"replay", "discard", "cancel"} & set(words[:2]))
        return [*words, "--yes"] if asks else words

    def _dead_letters(self) -> Task:
        """A few more dead letters; one of them."""
        now = self._engine.clock.now()
        made = []
        for number in range(3):
            task = a_dead_letter(number, failure=ERROR)
            status = replace(task.status, ended_at=now - MINUTE, alarm=now + DAY)
            made.append(Task(replace(task.spec, created_at=now - MINUTE), status))
        run_inline(self._engine.store.add(made, now=now, bounds={}))
        return made[0]

    def _operation(self) -> str:
        """An operation that waits behind its canary."""
        wish = NewOperation(action=Action.REPLAY, query=parse_query("state:dead_letter"), canary=1)
        begun = run_inline(self._engine.operations.start(wish))
        return run_inline(self._engine.operations.pause(begun.id)).id

    def _schedule(self, called: str) -> None:
        schedule = Schedule(name=called, cron="0 3 * * *", submission=Submission(type="make_report"))
        run_inline(self._engine.schedules.put(schedule))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_of_the_page_does_what_it_says(page: Path, folder: Folder) -> None:
    reader = Reader(folder)
    said = [command for command in commands(page) if command not in ONLY_NAMED]
    assert said
    for command in said:
        words = reader.own(command)
        if command in ONLY_READ:
            program().parse_args(words)
        else:
            ended = folder.quick(*words)
            assert ended.code == 0, (command, words, ended)


def test_the_pages_of_the_index_walk_through_what_happens_at_night() -> None:
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    for link in (
        "how-to/dead-letters.md#a-poison-task",
        "how-to/dead-letters.md#a-bad-deploy-that-dead-lettered-50000-tasks",
        "how-to/drain-a-node.md",
        "how-to/a-queue-that-does-not-move.md",
        "how-to/schedule-tasks.md#a-schedule-that-must-not-double",
        "how-to/examine-with-the-doctor.md",
    ):
        assert f"({link})" in index
