"""What PostgreSQL's errors mean to us."""

from __future__ import annotations

from typing import Final

import psycopg

from fairlead.core.errors import StoreError, StoreFull, StoreMismatch, StoreReadOnly, StoreUnavailable
from fairlead.storage.postgres.address import Address

SERIALIZATION_FAILURE: Final = "40001"
DEADLOCK: Final = "40P01"

_OUT_OF_SPACE: Final = frozenset({"53100", "53400"})
_READ_ONLY: Final = frozenset({"25006", "42501"})
_NO_SCHEMA: Final = frozenset({"42P01", "42703", "3F000", "42883"})
_CONSTRAINT: Final = "23"
_PASSING_CLASSES: Final = frozenset({"08", "40", "53", "55", "57", "58", "28", "3D", "25"})


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
    if code is not None and code[:2] == _CONSTRAINT:
        return Contradicted(f"{place}: {text}; nothing was done")
    if code is None or code[:2] in _PASSING_CLASSES:
        return StoreUnavailable(f"{place}: {text or type(error).__name__}; repeating the call is safe")
    return StoreError(f"{place}: {text} (SQLSTATE {code})")


def timed_out(address: Address) -> StoreUnavailable:
    """Our error for a call that took too long."""
    return StoreUnavailable(
        f"{address.shown} did not answer within {address.timeout:g} s; whether the call took effect is unknown, "
        f"repeating it is safe. A longer limit is ?timeout=seconds in the store URL"
    )
