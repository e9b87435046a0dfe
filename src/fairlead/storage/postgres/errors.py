"""What PostgreSQL's errors mean to us."""

from __future__ import annotations

import re
from typing import Final

import psycopg

from fairlead.core.errors import (
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
)
from fairlead.storage.deadline import Budget
from fairlead.storage.postgres.url import Address

SERIALIZATION_FAILURE: Final = "40001"
DEADLOCK: Final = "40P01"

_OUT_OF_SPACE: Final = frozenset({"53100", "53400"})
_READ_ONLY: Final = frozenset({"25006", "42501"})
_NO_SCHEMA: Final = frozenset({"42P01", "42703", "3F000", "42883"})
_CONSTRAINT: Final = "23"
_NO_DATABASE: Final = "3D"
_NOT_LET_IN: Final = "28"
_NOT_PREPARED: Final = frozenset({"26000", "42P05"})
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58", "25"})


# Of a connection that failed libpq tells words alone, in the language of the server: what is said in another than
# English is taken for trouble that passes.
_NO_DATABASE_IN_WORDS: Final = re.compile(r'database ".*" does not exist|no such database')
_NOT_LET_IN_IN_WORDS: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|permission denied for database|no such user"
    r'|role ".*" (does not exist|is not permitted to log in)'
)


class Contradicted(StoreError):
    """A statement would have broken a constraint, and had no effect."""


def may_retry(error: psycopg.Error) -> bool:
    """Whether nothing happened and the same may succeed at once."""
    return error.sqlstate in {SERIALIZATION_FAILURE, DEADLOCK}


def named(error: psycopg.Error, address: Address) -> StoreError:
    """Our error for one of PostgreSQL's, with the place and the remedy."""
    place, code, text = address.shown, error.sqlstate, str(error).strip().split("\n")[0]
    if code in _OUT_OF_SPACE:
        return StoreFull(f"the disk of {place} is full ({text}); nothing was stored. Free some space and repeat it")
    if code in _READ_ONLY:
        return StoreReadOnly(
            f"{place} cannot be written ({text}); nothing was stored. Connect to the primary, with a role that may "
            f"write to schema {address.schema}"
        )
    if code in _NO_SCHEMA:
        return StoreMismatch(
            f"schema {address.schema} of {place} is not what this fairlead expects ({text}); run `fairlead migrate`"
        )
    if _says(error, _NO_DATABASE, _NO_DATABASE_IN_WORDS):
        return StoreMismatch(f"{place}: {text}; nothing was done. Create the database, or name another in the URL")
    if code in _NOT_PREPARED:
        return StoreError(
            f"{place}: {text}; nothing was done. A pooler, such as PgBouncer in transaction mode, does not keep what "
            f"is prepared: write prepare=off in the URL, or leave prepare=on out"
        )
    if is_refusal(error):
        return StoreRefused(
            f"{place} does not let us in: {text}; nothing was done. Check user and password in the URL, or what gives "
            f"the credentials, and what the server allows that user"
        )
    if code is not None and code[:2] == _CONSTRAINT:
        return Contradicted(f"{place}: {text}; nothing was done")
    if code is None or code[:2] in _PASSING_CLASSES:
        return StoreUnavailable(f"{place}: {text or type(error).__name__}; repeating the call is safe")
    return StoreError(f"{place}: {text} (SQLSTATE {code})")


def is_refusal(error: psycopg.Error) -> bool:
    """Whether the server does not let this user in, with this password."""
    return _says(error, _NOT_LET_IN, _NOT_LET_IN_IN_WORDS)


def _says(error: psycopg.Error, sqlstate_class: str, words: re.Pattern[str]) -> bool:
    """Whether this is what an error says: by its code, or if it has none by its words."""
    if error.sqlstate is not None:
        return error.sqlstate[:2] == sqlstate_class
    return words.search(str(error)) is not None


def timed_out(address: Address) -> StoreUnavailable:
    """Our error for a call that took too long."""
    return Budget(address.timeout, address.shown, blocking=False).spent()
