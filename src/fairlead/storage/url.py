"""The options of a store's URL: what is after its question mark."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from urllib.parse import quote, unquote

from fairlead.core.errors import InvalidSettings


def split(url: str) -> tuple[str, list[str]]:
    """A URL up to its options, and its options as they were written."""
    scheme, mark, rest = url.partition("://")
    # As libpq does: what is before an @ is user and password, whatever characters are in it.
    authority = rest.partition("/")[0]
    login = f"{authority.partition('@')[0]}@" if "@" in authority else ""
    place, _, query = rest.removeprefix(login).partition("?")
    return f"{scheme}{mark}{login}{place}", query.split("&") if query else []


def joined(beginning: str, options: Sequence[str]) -> str:
    """The URL of which these are the parts."""
    return f"{beginning}?{'&'.join(options)}" if options else beginning


def with_option(url: str, name: str, value: str) -> str:
    """A URL with this option, whatever it said of it."""
    beginning, options = split(url)
    others = [option for option in options if unquote(option.partition("=")[0]) != name]
    return joined(beginning, [*others, f"{name}={quote(value, safe='')}"])


def split_options(url: str, names: Container[str]) -> tuple[str, Mapping[str, str]]:
    """A URL without the options of these names, all else as it was written, and those options."""
    beginning, options = split(url)
    theirs: list[str] = []
    ours: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition("=")
        if (name := unquote(name)) not in names:
            theirs.append(option)
        elif name in ours:
            raise InvalidSettings(f"the store URL has the option {name} twice; leave one of them out")
        else:
            ours[name] = unquote(value)
    return joined(beginning, theirs), ours
