"""`rebuild`: puts back into Redis what it has lost and the journal has."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator

from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured
from fairlead.cli.output import console, write, write_json
from fairlead.core.errors import InvalidSettings
from fairlead.sdk.configuration import Configuration
from fairlead.storage.journal.rebuilding import Rebuilding, Rebuilt
from fairlead.storage.journal.store import JournalStore
from fairlead.storage.opening import open_store

Tell = Callable[[int, int], None]


def rebuild(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Put every task that had not ended back into a Redis that has lost it, from the journal.

    Tasks that are there are left alone, so it may be interrupted and repeated, and workers may run meanwhile. What was
    executing waits again, with the wait it had.
    """
    configuration = configured(common)
    if configuration.journal is None:
        raise InvalidSettings("there is no journal to rebuild from; name it with --journal or FAIRLEAD_JOURNAL")
    with _progress(shown=not common.json and sys.stderr.isatty()) as tell:
        done = asyncio.run(_rebuild(configuration, tell))
    if common.json:
        write_json({"looked_at": done.looked_at, "put_back": done.put_back})
    else:
        write(f"{done.put_back:,} tasks are back; {done.looked_at - done.put_back:,} were there already")


async def _rebuild(configuration: Configuration, tell: Tell) -> Rebuilt:
    store = await open_store(configuration.store, journal=configuration.journal_url)
    try:
        if not isinstance(store, JournalStore):
            raise AssertionError("a store with a journal is a journal store")
        now = await store.time() or 0
        rules = configuration.engine_settings().rules
        return await Rebuilding(store.hot, store.journal, now=now, rules=rules).run(tell)
    finally:
        await store.close()


@contextlib.contextmanager
def _progress(*, shown: bool) -> Iterator[Tell]:
    """A bar on the terminal, which counts tasks."""
    if not shown:
        yield lambda looked_at, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("rebuilding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("rebuilding", total=None)
        yield lambda looked_at, total: progress.update(bar, completed=looked_at, total=max(total, looked_at))
