"""Where a journal is: a PostgreSQL store URL, with a few options more.

required=off         submits are accepted while the journal is out of reach, and journalled when it returns
hot_retention=60     seconds for which an ended task stays in the hot store too
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LONGEST, MINUTE, Span, span
from fairlead.storage.postgres.address import Address, parse

SCHEMA: Final = "fairlead_journal"
_SWITCH: Final = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


class JournalAddress(Struct, frozen=True, kw_only=True):
    """A database, and how it is used."""

    database: Address
    required: bool = True
    """Whether a submit fails while the journal is out of reach."""
    hot_retention: Span = MINUTE
    """How long an ended task stays in the hot store too; one with an idempotency key stays until the key is free."""


def parse_journal(url: str) -> JournalAddress:
    """The address that a URL names; raises InvalidSettings when it is none."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise InvalidSettings(f"a journal is kept in PostgreSQL, not in {parts.scheme}; use postgresql://host/database")
    options = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in options if name in {"required", "hot_retention"}}
    theirs = [(name, value) for name, value in options if name not in ours]
    address = parse(urlunsplit(parts._replace(query=urlencode(theirs, quote_via=quote))))
    if "schema" not in dict(theirs):
        address = replace(address, schema=SCHEMA)
    # Every error says whose it is: a store's user knows of two places.
    address = replace(address, shown=f"the journal at {address.shown}")
    return JournalAddress(
        database=address,
        required=_switch(ours.get("required", "on")),
        hot_retention=_seconds(ours.get("hot_retention", "60")),
    )


def _switch(word: str) -> bool:
    try:
        return _SWITCH[word.lower()]
    except KeyError:
        raise InvalidSettings(f"required={word} in the journal URL is neither on nor off") from None


def _seconds(word: str) -> Span:
    try:
        length = span(float(word))
    except (ValueError, OverflowError):
        length = -1
    if not 0 <= length <= LONGEST:
        raise InvalidSettings(f"hot_retention={word} in the journal URL is not a number of seconds, 0 to a year")
    return length
