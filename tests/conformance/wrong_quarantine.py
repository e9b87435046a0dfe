"""Stores that deal wrongly with what cannot be decoded. Memory has nothing of the kind, so they are files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from msgspec.structs import replace

from fairlead.core.health.quarantine import Fault, Quarantined
from fairlead.core.task import Task
from fairlead.storage.quarantine import Damage, Damaged, Removal, revive_parts
from fairlead.storage.sqlite.claim import claim as claim_tasks
from fairlead.storage.sqlite.database import Connection
from fairlead.storage.sqlite.read import Found
from fairlead.storage.sqlite.runner import Operation
from fairlead.storage.sqlite.store import SqliteStore
from fairlead.storage.values import Claim


class WrongFile(SqliteStore):
    """A file that breaks one clause."""

    breaks: ClassVar[str]


class AnswersNothingForDamage(WrongFile):
    """Sets damage aside, and leaves the good tasks to the next claim."""

    breaks = "Q1"

    async def claim(self, claim: Claim) -> list[Task]:
        try:
            return await self._writer.run(partial(claim_tasks, request=claim))
        except Damaged as met:
            await self.quarantine.set_aside(met.found)
            return []


class CountsWhatIsGone(WrongFile):
    """Counts what it has set aside as completed."""

    breaks = "Q2"

    async def _set_aside(self, damage: Damage) -> Removal:
        def count(connection: Connection) -> None:
            connection.execute("UPDATE lane SET completed = completed + 1")

        removal = await super()._set_aside(damage)
        await self._writer.run(count)
        return removal


class TellsNobody(WrongFile):
    """Says that someone else was quicker."""

    breaks = "Q3"

    async def _set_aside(self, damage: Damage) -> Removal:
        await super()._set_aside(damage)
        return Removal.GONE


class TakesTheNewForDamage(WrongFile):
    """Sets aside what it does not know."""

    breaks = "Q4"

    async def _read(self, operation: Operation[list[Found]]) -> list[Found]:
        try:
            return await self._reader.run(operation)
        except Damaged as met:
            await self.quarantine.set_aside([replace(damage, fault=Fault.DAMAGED) for damage in met.found])
            answer: list[Found] = met.answer
            return answer


class RevivesLess(WrongFile):
    """Forgets the tags of what it puts back."""

    breaks = "Q5"

    def __init__(self, path: Path) -> None:
        super().__init__(path, synchronous="NORMAL")
        self.quarantine.revive = _without_tags


def _without_tags(quarantined: Quarantined) -> Task:
    task = revive_parts(quarantined)
    return Task(replace(task.spec, tags=()), task.status)


WRONG_FILES: list[type[WrongFile]] = [
    AnswersNothingForDamage,
    CountsWhatIsGone,
    TellsNobody,
    TakesTheNewForDamage,
    RevivesLess,
]
