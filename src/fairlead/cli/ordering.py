"""Orders of service, as people write and read them: `promote:low=60,medium=120`."""

from __future__ import annotations

from typing import Any, Final

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import SECOND, span
from fairlead.core.order import HeadStart, Policy, Promote, Strict, Weighted

_POLICIES: Final[dict[str, type[Policy]]] = {
    "promote": Promote,
    "strict": Strict,
    "head_start": HeadStart,
    "weighted": Weighted,
}


def parse_order(text: str) -> Policy:
    """The order of service that a person means; what is left out of its table has its default."""
    name, _, table = text.partition(":")
    policy = _POLICIES.get(name.strip().replace("-", "_"))
    if policy is None:
        raise InvalidSettings(f"order {name!r} is unknown; use {', '.join(_POLICIES)}")
    fields: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in table.split(","))):
        word, _, value = part.partition("=")
        if word not in policy.__struct_fields__:
            known = ", ".join(policy.__struct_fields__) or "nothing"
            raise InvalidSettings(f"the order {name} has no {word!r} in its table; it has {known}")
        fields[word] = _value(policy, word, value)
    return policy(**fields)


def describe(policy: Policy) -> str:
    """An order of service in the words that `parse_order` reads."""
    name = next(word for word, kind in _POLICIES.items() if isinstance(policy, kind))
    scale = 1 if isinstance(policy, Weighted) else SECOND
    table = ",".join(f"{field}={getattr(policy, field) / scale:g}" for field in policy.__struct_fields__)
    return f"{name}:{table}" if table else name


def _value(policy: type[Policy], word: str, value: str) -> int:
    try:
        return int(value) if policy is Weighted else span(float(value))
    except (ValueError, OverflowError):
        wanted = "a whole number" if policy is Weighted else "a number of seconds"
        raise InvalidSettings(f"{word}={value} in the order's table is not {wanted}") from None
