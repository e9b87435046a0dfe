"""`migrate`: brings the schema of a PostgreSQL store or journal up to date."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, configured
from fairlead.cli.output import write, write_json
from fairlead.core.errors import InvalidSettings
from fairlead.core.secret_mask import masked
from fairlead.storage.credentials import with_command
from fairlead.storage.open import is_postgres


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

        _report(store, migrate_store(store), as_json=common.json)
    if journal is not None:
        from fairlead.storage.journal.journal import migrate as migrate_journal

        _report(journal, migrate_journal(journal), as_json=common.json)


def _report(url: str, applied: list[str], *, as_json: bool) -> None:
    if as_json:
        write_json({"url": masked(url), "applied": applied})
    else:
        write(f"{masked(url)}: {'applied ' + ', '.join(applied) if applied else 'up to date'}")
