"""Asking for credentials, at each new connection.

Tokens of clouds and of vaults hold for minutes, so none is kept: what a URL says once would be refused the next time. A
server that refuses what was given is offered what is given then, once, since it may have been changed in between.
Nothing here shows what was given.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import shlex
import subprocess
import threading
import traceback
from concurrent.futures import Future
from contextvars import copy_context

import msgspec
from msgspec import Struct

from fairlead.core.errors import InvalidSettings, StoreUnavailable
from fairlead.storage.credentials import OPTION, Credentials
from fairlead.storage.deadline import PATIENCE, left


class Login(Struct, frozen=True):
    """What a server is told."""

    username: str | None
    """None for what the URL says."""
    password: str

    def __repr__(self) -> str:
        return "Login(***)"


class Command:
    """Credentials that a command prints: a password, or a JSON object with `username` and `password`."""

    def __init__(self, line: str) -> None:
        """The line is split as a shell would; to have a shell run it, write `sh -c '…'`."""
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise InvalidSettings(f"{OPTION} cannot be split into words: {error}; check its quotes") from None
        if not self._words:
            raise InvalidSettings(f"{OPTION} is empty; name a command that prints a password, or leave it out")

    def __call__(self) -> str | tuple[str, str]:
        limit = left(math.inf)
        try:
            # What it complains of is for whoever reads this program's own stderr: it may hold anything.
            done = subprocess.run(  # noqa: S603 - the operator's own command
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=False,
                timeout=None if limit == math.inf else limit,
            )
        except subprocess.TimeoutExpired:
            raise StoreUnavailable(
                f"{self._name} gave no credentials in time; nothing was done. A longer limit is ?timeout=seconds in "
                f"the store URL"
            ) from None
        except OSError as error:
            raise StoreUnavailable(f"{self._name} cannot be run: {error.strerror}; nothing was done") from None
        if done.returncode:
            raise StoreUnavailable(
                f"{self._name} ended with {done.returncode} and gave no credentials; nothing was done. It says why on "
                f"stderr"
            )
        return self._read(done.stdout)

    def __repr__(self) -> str:
        return f"Command({self._words[0]!r}, …)"

    @property
    def _name(self) -> str:
        return f"{OPTION} {self._words[0]!r}"

    def _read(self, printed: bytes) -> str | tuple[str, str]:
        try:
            text = printed.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise StoreUnavailable(f"{self._name} printed what is not UTF-8; nothing was done") from None
        if text.startswith("{"):
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(text, type=_Printed).pair
        if not text or "\n" in text:
            raise StoreUnavailable(
                f"{self._name} printed {len(text.splitlines())} lines; nothing was done. It has to print a password in "
                f'one line, or {{"username": …, "password": …}}'
            )
        return text


class _Printed(Struct, frozen=True):
    password: str
    username: str | None = None

    @property
    def pair(self) -> str | tuple[str, str]:
        return self.password if self.username is None else (self.username, self.password)


def ask(credentials: Credentials) -> Login:
    """What they are now. Blocks; raises StoreUnavailable when they cannot be had."""
    try:
        given: object = credentials()
    except StoreUnavailable:
        raise
    except Exception as error:
        # What it says may hold a secret; where it is raised helps as much.
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise StoreUnavailable(
            f"the credentials function raised {type(error).__name__} ({place.filename}, line {place.lineno}); nothing "
            f"was done, and it is asked again for the next connection"
        ) from None
    match given:
        case str() if given:
            return Login(None, given)
        case (str() as username, str() as password) if username and password:
            return Login(username, password)
        case _:
            raise StoreUnavailable(
                f"the credentials function gave a value of type {type(given).__name__} that is neither a password nor "
                f"a user name and a password; nothing was done"
            )


async def ask_in_thread(credentials: Credentials, longest: float) -> Login:
    """The same from an event loop, which is not held up; for so many seconds, or what is left of the call's time."""
    limit = left(max(longest, PATIENCE))
    answer: Future[Login] = Future()

    def run() -> None:
        answer.set_running_or_notify_cancel()
        try:
            answer.set_result(ask(credentials))
        except BaseException as error:
            answer.set_exception(error)

    # Not one of the loop's own threads: handlers may hold all of those, and a program could not end while it hangs.
    thread = threading.Thread(target=copy_context().run, args=(run,), name="fairlead-credentials", daemon=True)
    thread.start()
    try:
        async with asyncio.timeout(limit):
            return await asyncio.wrap_future(answer)
    except TimeoutError:
        raise StoreUnavailable(
            f"no credentials were given within {limit:.3g} s; nothing was done. A longer limit is ?timeout=seconds in "
            f"the store URL"
        ) from None
