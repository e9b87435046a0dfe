"""`rebuild`: puts back into Redis what it has lost and the journal has."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fairlead.app.config import Configuration
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured
from fairlead.cli.output import console, write, write_json
from fairlead.core.errors import InvalidSettings
from fairlead.storage.open import open_store

if TYPE_CHECKING:
    from fairlead.storage.journal.rebuild import Rebuilt

Tell = Callable[[int, int], None]


def rebuild(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Rebuild a Redis store that has lost data: put back every unfinished task from the journal.

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
        write(f"{done.put_back:,} tasks put back; {done.looked_at - done.put_back:,} were not lost")


async def _rebuild(configuration: Configuration, tell: Tell) -> Rebuilt:
    # It says, before anything else, what is not installed.
    store = await open_store(configuration.store_url, journal=configuration.journal_url)
    from fairlead.storage.journal.store import JournalStore

    try:
        if not isinstance(store, JournalStore):
            raise AssertionError("a store with a journal is a journal store")
        return await store.rebuild(configuration.engine_settings().rules, tell)
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
