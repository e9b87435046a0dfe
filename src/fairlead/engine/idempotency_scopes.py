"""Names the idempotency keys of new tasks, through the days in which the servers of a store are upgraded."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairlead.core.identity import TaskId
from fairlead.core.settings import Settings
from fairlead.core.task import Spec, Task
from fairlead.core.tenancy import Phase, Upgrade, key_name
from fairlead.engine.records import Form, Records, Unread, decoder
from fairlead.engine.runtime.clock import Clock
from fairlead.storage.values import Filter

KIND: Final = "upgrade"
NAME: Final = "key-scope"
FORM: Final = Form(kind=KIND, decode=decoder(Upgrade), sealed=True)


class KeyScopes:
    """How the keys of one store are named. The store is asked once, for the first key."""

    def __init__(self, records: Records, clock: Clock, settings: Settings) -> None:
        self._records = records
        self._clock = clock
        self._settings = settings
        self._is_known = False
        self._upgrade: Upgrade | None = None

    async def begin(self) -> None:
        """Learn since when the store's servers know scopes; the first of them writes it down."""
        store = self._records.store
        while not self._is_known:
            found = await self._records.find(FORM, NAME)
            if found is not None:
                self._is_known = True
                self._upgrade = None if isinstance(found, Unread) else found.value
                return
            is_used = bool(await store.find(Filter(), limit=1))
            upgrade = Upgrade(since=self._clock.now() if is_used else None)
            await store.put(KIND, NAME, FORM.write(upgrade), expected=0)

    async def name(self, task: Task) -> tuple[Task, TaskId | None]:
        """A new task with its key as its store is to know it, and who holds that key by its old name if anyone does."""
        spec = task.spec
        if spec.idempotency_key is None:
            return task, None
        if not self._is_known:
            await self.begin()
        name = key_name(spec.idempotency_key, spec.tenant)
        phase = Phase.OWN if name == spec.idempotency_key else self._phase()
        if phase is Phase.SHARED:
            return task, None
        holder = await self._old_holder(spec) if phase is Phase.BOTH else None
        return Task(replace(spec, idempotency_key=name), task.status), holder

    def _phase(self) -> Phase:
        # While it cannot be read when the upgrade was, both names are looked at.
        return (
            Phase.BOTH
            if self._upgrade is None
            else self._upgrade.phase(self._clock.now(), self._settings.key_retention)
        )

    async def _old_holder(self, spec: Spec) -> TaskId | None:
        """Who holds the key of a task by its old name, if that is its tenant's."""
        store = self._records.store
        holder = await store.holder(spec.queue, spec.idempotency_key or "", now=self._clock.given())
        if holder is None:
            return None
        (task,) = await store.get([holder])
        return holder if task is not None and task.spec.tenant == spec.tenant else None
