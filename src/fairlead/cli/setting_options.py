"""Settings on the command line: options from the one definition of each (`core.queues.queue`), and their words."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, assert_never

from cyclopts import Parameter
from msgspec import Struct

from fairlead.core.errors import InvalidSettings
from fairlead.core.instant import SECOND
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.queue import (
    BackoffPolicy,
    ByType,
    Count,
    Kind,
    OrderPolicy,
    PriorityWord,
    RateText,
    Seconds,
    Setting,
    SharedBy,
    Text,
    WeightNumber,
    settings_in,
)
from fairlead.core.validation import span_of

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
    table = ",".join(f"{field}={_written(policy, field)}" for field in policy.__struct_fields__)
    return f"{name}:{table}" if table else name


def _written(policy: Policy, field: str) -> str:
    value = getattr(policy, field)
    return value if isinstance(value, str) else f"{value / (1 if isinstance(policy, Weighted) else SECOND):g}"


def _value(policy: type[Policy], word: str, value: str) -> int | str:
    if word == "share":
        return value  # The policy checks it.
    try:
        return int(value) if policy is Weighted else span_of(word, float(value))
    except (ValueError, OverflowError):
        wanted = "a whole number" if policy is Weighted else "a number of seconds"
        raise InvalidSettings(f"{word}={value} in the order's table is not {wanted}") from None


DEFAULT: Final = "default"
"""The value that goes back to what the settings of all say."""

_ORDERS: Final = (
    " `strict`, `promote`, `promote:low=60,medium=120,high=300` (seconds), `promote:share=all`, "
    "`head_start:critical=600,high=60`, `weighted:critical=8,high=4,medium=2,low=1`."
)


@functools.cache
def option_texts(struct: type[Struct]) -> type[Any]:
    """A dataclass with an option for each setting that can be written as one."""
    return dataclasses.make_dataclass(
        f"{struct.__name__}Options",
        [
            (name, _option(each), dataclasses.field(default=() if isinstance(each.kind, ByType) else None))
            for name, each in settings_in(struct).items()
            if not isinstance(each.kind, BackoffPolicy)
        ],
        kw_only=True,
        namespace={"__module__": __name__},
    )


def parsed(struct: type[Struct], texts: Any) -> dict[str, Any]:
    """What somebody said of the settings by their options."""
    said = {name: getattr(texts, name, None) for name in settings_in(struct)}
    return {
        name: _parsed(settings_in(struct)[name].kind, name.replace("_", "-"), text)
        for name, text in said.items()
        if text not in (None, ())
    }


def labelled(own: Struct) -> dict[str, str]:
    """What is said of something alone, by its label; `DEFAULT` for what is not."""
    lines: dict[str, list[str]] = {}
    for name, each in settings_in(type(own)).items():
        value = getattr(own, name)
        if isinstance(each.kind, ByType):
            for task_type in sorted(value):
                lines.setdefault(f"{task_type} {each.label}", []).append(_text(each.kind.each, value[task_type]))
            continue
        words = lines.setdefault(each.label or name, [])
        if value is not None:
            words.append(_text(each.kind, value))
    return {label: ", ".join(words) or DEFAULT for label, words in lines.items()}


def _option(setting: Setting) -> Any:
    help_text = setting.meaning
    match setting.kind:
        case Count():
            metavar = "N"
        case Seconds():
            metavar = "SECONDS"
        case PriorityWord():
            metavar = "WORD"
        case RateText():
            metavar = "RATE"
        case Text() | BackoffPolicy():
            metavar = "NAME"
        case OrderPolicy():
            metavar, help_text = "POLICY", help_text.rstrip(".") + ":" + _ORDERS
        case SharedBy():
            metavar = "WHAT"
        case WeightNumber():
            metavar = "N"
        case ByType(each, of):
            value = "RATE" if isinstance(each, RateText) else "N"
            parameter = Parameter(help=f"{help_text} May be given more than once.", metavar=f"{of.upper()}={value}")
            return Annotated[tuple[str, ...], parameter]
        case _:
            assert_never(setting.kind)
    return Annotated[str | None, Parameter(help=help_text, metavar=metavar)]


def _parsed(kind: Kind, option: str, text: Any) -> Any:
    """What a text means, as `Setting.of` takes it."""
    if isinstance(kind, ByType):
        return _by_type(option, text, kind.of, lambda value: _parsed(kind.each, option, value))
    if text == DEFAULT:
        return None
    match kind:
        case Count():
            return _number(option, text, int, "a whole number")
        case Seconds():
            return _number(option, text, float, "a number of seconds")
        case WeightNumber():
            return _number(option, text, float, "a number")
        case OrderPolicy():
            return parse_order(text)
        case PriorityWord() | RateText() | Text() | BackoffPolicy() | SharedBy():
            return text
        case _:
            assert_never(kind)


def _by_type(option: str, texts: Iterable[str], of: str, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    found = {}
    for text in texts:
        # A fair key may have = in it.
        name, separator, value = text.rpartition("=")
        if not separator:
            what, example = ("task type", "send=2") if of == "type" else ("fair key", "acme=3")
            raise InvalidSettings(
                f"--{option} {text!r} names no value; write the {what}, = and the value, such as {example}"
            )
        found[name] = parse(value)
    return found


def _number(option: str, text: str, read: Callable[[str], float], what: str) -> float:
    try:
        number = read(text)
        if not abs(number) < float("inf"):
            raise ValueError(text)
    except ValueError:
        raise InvalidSettings(f"--{option} {text!r} is not {what}; use one, or {DEFAULT}") from None
    return number


def _text(kind: Kind, value: Any) -> str:
    match kind:
        case Count(zero=zero):
            return f"{value:,}" if value or not zero else zero
        case Seconds():
            return f"{value / SECOND:g} s"
        case PriorityWord():
            return str(value.word)
        case OrderPolicy():
            return describe(value)
        case BackoffPolicy():
            return f"{value.initial / SECOND:g} s × {value.factor:g} up to {value.ceiling / SECOND:g} s"
        case RateText() | Text() | SharedBy():
            return str(value)
        case WeightNumber():
            return f"{value:g}"
        case ByType(each):
            return ", ".join(f"{name} {_text(each, own)}" for name, own in value.items())
        case _:
            assert_never(kind)
