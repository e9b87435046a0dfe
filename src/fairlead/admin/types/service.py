"""Published task types: kept as records, one for each type and tenant. Submits by name are filled in from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import InvalidTask, TypeNotFound
from fairlead.core.identity import check_name
from fairlead.core.submission import Declaration, check_declaration
from fairlead.engine.changes import TaskChanges
from fairlead.engine.queue_cache import BELL, DECLARATION_FORM, DECLARATION_KIND, SCHEMA_KIND, declaration_name
from fairlead.engine.runtime.telemetry import Logger

log = Logger("fairlead.worker")

MOST_TYPES: Final = 1_000
"""How many types may be published for one tenant, or for none: every server and worker reads their options."""


class Types:
    """The published types, or as one tenant sees them: its own. Those that are for all count for its submits, too."""

    def __init__(self, task_changes: TaskChanges, tenant: str | None = None) -> None:
        self._task_changes = task_changes
        self._records = task_changes.records
        self._store = task_changes.store
        self._clock = task_changes.clock
        self._tenant = tenant

    def of(self, tenant: str | None) -> Types:
        """The same for a tenant."""
        return Types(self._task_changes, tenant)

    async def all(self) -> list[Declaration]:
        """The published task types, by name, without the schemas of their parameters."""
        return [each for each in await self._read() if self._tenant is None or each.tenant == self._tenant]

    async def get(self, task_type: str) -> Declaration:
        """A published task type, with the schema of its parameters; raises TypeNotFound if nobody publishes it."""
        check_name("task_type", task_type)
        found = next((each for each in await self.all() if each.submission.type == task_type), None)
        if found is None:
            raise TypeNotFound(task_type)
        name = declaration_name(task_type, found.tenant)
        schemas = [record.value for record in await self._store.scan(SCHEMA_KIND) if record.name == name]
        return replace(found, schema=schemas[0] if schemas else b"")

    async def declare(self, declarations: Iterable[Declaration]) -> None:
        """Publish types, in place of what was published of them before: the newest word counts."""
        before = await self._records.read(DECLARATION_FORM)
        known = {each.name: each.value for each in before.kept}
        schemas = {record.name: record.value for record in await self._store.scan(SCHEMA_KIND)}
        room = MOST_TYPES - sum(each.tenant == self._tenant for each in known.values())
        # What a newer version has published is left as it is.
        unread = {each.name for each in before.unread}
        said = {declaration_name(each.submission.type, self._tenant): check_declaration(each) for each in declarations}
        if len(said.keys() - known.keys() - unread) > room:
            raise InvalidTask(
                "type", f"{MOST_TYPES:,} types may be published at most; remove some with `fairlead types remove`"
            )
        changed = False
        for name, declaration in said.items():
            if name in unread:
                continue
            was = known.get(name)
            kept = replace(declaration, tenant=self._tenant, schema=b"", at=self._clock.now())
            if schemas.get(name, b"") != declaration.schema:
                await self._store.put(SCHEMA_KIND, name, declaration.schema)
            if was is None or (was.submission, was.computed) != (kept.submission, kept.computed):
                _tell(was, kept)
                await self._store.put(DECLARATION_KIND, name, DECLARATION_FORM.write(kept))
                changed = True
        if changed:
            await self._ring()

    async def remove(self, task_type: str) -> Declaration:
        """Remove a published task type: submits by name get the defaults, until a worker publishes it again."""
        found = await self.get(task_type)
        name = declaration_name(task_type, found.tenant)
        await self._store.drop(SCHEMA_KIND, name)
        if not await self._store.drop(DECLARATION_KIND, name):
            raise TypeNotFound(task_type)
        await self._ring()
        return found

    async def _read(self) -> list[Declaration]:
        kept = (await self._records.read(DECLARATION_FORM)).values
        return sorted(kept, key=lambda each: (each.submission.type, each.tenant or ""))

    async def _ring(self) -> None:
        await self._store.put(BELL, BELL, b"")
        self._task_changes.queue_cache.expire()


def _tell(was: Declaration | None, now: Declaration) -> None:
    if was is not None:
        log.info(
            "task type %s is published with other options than before, by worker %s; submits by name use them from "
            "now on",
            now.submission.type,
            now.worker,
        )
