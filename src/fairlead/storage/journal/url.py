"""Where a journal is: a PostgreSQL store URL, with a few options more.

required=off         submits are accepted while the journal is out of reach, and journalled when it returns
remember=900         seconds for which API keys and settings of queues hold while the journal is out of reach
rebuild=off          a hot store that has lost everything is not rebuilt by itself
hot_retention=60     seconds for which an ended task stays in the hot store too
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import LONGEST, MINUTE, Span
from fairlead.core.secret_mask import Masked
from fairlead.core.validation import span_of
from fairlead.storage.postgres.url import Address, parse
from fairlead.storage.url import split_options

SCHEMA: Final = "fairlead_journal"
_OPTIONS: Final = frozenset({"required", "rebuild", "remember", "hot_retention"})
_SWITCH: Final = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


class JournalAddress(Masked, frozen=True, kw_only=True):
    """A database, and how it is used."""

    database: Address
    required: bool = True
    """Whether a submit fails while the journal is out of reach."""
    rebuild: bool = True
    """Whether a hot store that has lost everything is rebuilt by itself."""
    remember: Span = 15 * MINUTE
    """How long API keys and settings of queues hold as last known while the journal is out of reach."""
    hot_retention: Span = MINUTE
    """How long an ended task stays in the hot store too; one with an idempotency key stays until the key is free."""


def parse_journal(url: str) -> JournalAddress:
    """The address that a URL names; raises InvalidSettings when it is none."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidSettings("a journal is kept in PostgreSQL; use postgresql://host/database for it")
    theirs, ours = split_options(url, _OPTIONS)
    address = parse(theirs)
    if "schema" not in split_options(theirs, {"schema"})[1]:
        address = replace(address, schema=SCHEMA)
    # Every error says whose it is: a store's user knows of two places.
    address = replace(address, shown=f"the journal at {address.shown}")
    return JournalAddress(
        database=address,
        required=_switch("required", ours.get("required", "on")),
        rebuild=_switch("rebuild", ours.get("rebuild", "on")),
        remember=_seconds("remember", ours.get("remember", "900")),
        hot_retention=_seconds("hot_retention", ours.get("hot_retention", "60")),
    )


def _switch(option: str, word: str) -> bool:
    try:
        return _SWITCH[word.lower()]
    except KeyError:
        raise InvalidSettings(f"{option}={word} in the journal URL is neither on nor off") from None


def _seconds(option: str, word: str) -> Span:
    try:
        length = span_of(option, float(word))
    except (ValueError, OverflowError):
        length = -1
    if not 0 <= length <= LONGEST:
        raise InvalidSettings(f"{option}={word} in the journal URL is not a number of seconds, 0 to a year")
    return length
