"""`doctor`, `migrate` and `rebuild`: whether all is as it should be, and what sets a store right."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from fairlead.admin.doctor.api import diagnosis_shown
from fairlead.app.config import Configuration
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured, reached
from fairlead.cli.output import Cell, console, write, write_json, write_styled
from fairlead.core.errors import FairleadError, InvalidSettings, StoreMismatch, StoreRefused
from fairlead.core.health.diagnosis import Diagnosis, Finding, Level
from fairlead.core.secret_mask import masked
from fairlead.engine.runtime.inline import run_inline
from fairlead.storage.credentials import with_command
from fairlead.storage.open import is_postgres, open_store

if TYPE_CHECKING:
    from fairlead.storage.journal.rebuild import Rebuilt

_STYLES: Final = {Level.GREEN: "green", Level.YELLOW: "yellow", Level.RED: "bold red"}


def doctor(*, common: CommonWithStore = COMMON_WITH_STORE) -> int:
    """Check the store's durability, clocks, versions, limits and leftovers, and say how to fix each problem.

    It changes nothing. The exit code is 1 if anything is red: tasks may be lost, or are stuck.
    """
    diagnosis = _diagnosed(common)
    if common.json:
        write_json(diagnosis_shown(diagnosis))
    else:
        _write_findings(diagnosis)
    return 1 if diagnosis.level is Level.RED else 0


def _diagnosed(common: CommonWithStore) -> Diagnosis:
    try:
        # What a store warns of when it is opened is among the findings.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning), reached(common) as connection:
            return run_inline(connection.inline().diagnose())
    except FairleadError as error:
        return Diagnosis(
            findings=(Finding(what="store", level=Level.RED, value=str(error), remedy=_remedy(error)),),
        )


def _remedy(error: FairleadError) -> str:
    match error:
        case InvalidSettings():
            return "correct the setting; `fairlead config` shows each and where it comes from"
        case StoreMismatch():
            return "run `fairlead migrate` if the schema is behind; otherwise upgrade fairlead, or use another store"
        case StoreRefused():
            return (
                "correct user and password in the store URL; a server wants a key with the role admin in "
                "FAIRLEAD_API_KEY, and `fairlead keys create` makes one"
            )
        case _:
            return "see that it runs and that this host reaches it; `fairlead config` shows which store is meant"


def _write_findings(diagnosis: Diagnosis) -> None:
    width = max(len(finding.what) for finding in diagnosis.findings)
    for finding in diagnosis.findings:
        style = _STYLES[finding.level]
        write_styled([Cell(f"{finding.level:<6}  ", style), Cell(f"{finding.what:<{width}}  "), Cell(finding.value)])
        if finding.remedy:
            write_styled([Cell(" " * (width + 10)), Cell(f"→ {finding.remedy}", "bold")])
    if diagnosis.level is Level.GREEN:
        write("all is as it should be")


def migrate(
    url: Annotated[
        str | None, Parameter(name="URL", help="The store to migrate, instead of the configured store and journal.")
    ] = None,
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Update the schema of a PostgreSQL store, and of the journal if there is one.

    Needed after an upgrade that says so. A schema that is up to date is left alone.
    """
    configuration = configured(common)
    store = configuration.store_url if url is None else with_command(url, configuration.credentials_command)
    journal = configuration.journal_url if url is None else None
    if not is_postgres(store) and journal is None:
        raise InvalidSettings(f"the store {masked(store)} has no schema to migrate; only PostgreSQL stores have")
    if is_postgres(store):
        from fairlead.storage.postgres.schema import migrate as migrate_store

        _report_applied(store, migrate_store(store), as_json=common.json)
    if journal is not None:
        from fairlead.storage.journal.journal import migrate as migrate_journal

        _report_applied(journal, migrate_journal(journal), as_json=common.json)


def _report_applied(url: str, applied: list[str], *, as_json: bool) -> None:
    if as_json:
        write_json({"url": masked(url), "applied": applied})
    else:
        write(f"{masked(url)}: {'applied ' + ', '.join(applied) if applied else 'up to date'}")


Tell = Callable[[int, int], None]


def rebuild(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """Rebuild a Redis store that has lost data: put back every unfinished task from the journal.

    Tasks that are there are left alone, so it may be interrupted and repeated, and workers may run meanwhile. What was
    executing waits again, with the wait it had.
    """
    configuration = configured(common)
    if configuration.journal is None:
        raise InvalidSettings("there is no journal to rebuild from; name it with --journal or FAIRLEAD_JOURNAL")
    with _rebuilding(shown=not common.json and sys.stderr.isatty()) as tell:
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
def _rebuilding(*, shown: bool) -> Iterator[Tell]:
    """A bar on the terminal, which counts tasks."""
    if not shown:
        yield lambda looked_at, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("rebuilding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("rebuilding", total=None)
        yield lambda looked_at, total: progress.update(bar, completed=looked_at, total=max(total, looked_at))
