"""Credentials that are asked for at each new connection: of a function, or of a command.

What they are asked with is in `login`, which imports more than those who have none should.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from fairlead.core.errors import InvalidSettings
from fairlead.storage.url import split_options, with_option

Credentials: TypeAlias = Callable[[], str | tuple[str, str]]
"""Gives a password, or a user name and a password. It is called from any thread, and may block for as long as a call
may take."""

OPTION: Final = "credentials_command"
"""The option of a URL that names a command."""

_SCHEMES: Final = ("redis", "unix", "postgres")
"""How the URLs begin that may have it."""

_REMEDY: Final = "a function that returns a password, or a user name and a password"


class Named(Struct, frozen=True):
    """A function that another process of the same program finds by its name."""

    module: str
    name: str
    path: tuple[str, ...]
    """Where modules are looked for."""

    def find(self) -> Credentials:
        """The function; raises InvalidSettings if it is not there."""
        sys.path[:] = self.path
        try:
            found: Any = importlib.import_module(self.module)
            for part in self.name.split("."):
                found = getattr(found, part)
        except Exception as error:
            raise InvalidSettings(
                f"the credentials function {self.module}.{self.name} cannot be imported: {type(error).__name__}"
            ) from error
        return check(found)


def named(credentials: Credentials) -> Named | None:
    """How another process finds a function; None where it cannot."""
    module, name = getattr(credentials, "__module__", None), getattr(credentials, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return Named(module, name, tuple(sys.path)) if found is credentials else None


def check(credentials: object, name: str = "credentials") -> Credentials:
    """Credentials as they must be; raises InvalidSettings."""
    # Few give any, and it is large.
    import inspect

    if not callable(credentials):
        # Not shown: it may be the password itself.
        raise InvalidSettings(f"{name} cannot be called; give {_REMEDY}")
    if inspect.iscoroutinefunction(credentials) or inspect.iscoroutinefunction(type(credentials).__call__):
        raise InvalidSettings(
            f"{name} is a coroutine function, which synchronous code could not call; give {_REMEDY}. On an event loop "
            f"it is called in a thread"
        )
    return credentials


def with_command(url: str, command: str | None) -> str:
    """A URL that names this command, if it is the URL of a server that may have one and it names none itself."""
    if command is None or not url.lower().startswith(_SCHEMES) or OPTION in split_options(url, {OPTION})[1]:
        return url
    return with_option(url, OPTION, command)


class _Address(Protocol):
    @property
    def credentials(self) -> Credentials | None: ...


Place = TypeVar("Place", bound=_Address)


def with_credentials(address: Place, credentials: Credentials | None) -> Place:
    """An address at which these are asked for, unless its URL names a command."""
    if credentials is None or address.credentials is not None:
        return address
    return replace(address, credentials=credentials)  # type: ignore[type-var]
