"""A run with secrets everywhere, after which they must be nowhere: what commands say, logs, answers, traces, values."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cyclopts import App

import fairlead
from fairlead.admin.keys.service import ApiKey, NewKey
from fairlead.app.config import load
from fairlead.app.connection import Connection, check_store, connect
from fairlead.cli.program import program
from fairlead.client.http.transport import Address, unreachable
from fairlead.core.errors import FairleadError
from fairlead.core.settings import Settings
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import Session
from fairlead.server.routes.dashboard import LoginRequest, SessionShown
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.open import check_journal, check_url, open_store
from fairlead.storage.postgres.url import parse
from fairlead.storage.redis.url import parse_address
from fairlead.worker.builtin import BuiltinSettings
from fairlead.worker.builtin.email import Mailer, parse_smtp_url
from fairlead.worker.keeper.lease_renewal import Brief, Remote
from fairlead.worker.logs import JsonFormatter, LineFormatter
from tests.canaries import CANARY, URLS
from tests.cli.running import Folder

ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "up": (), "worker": (), "serve": (), "keys create": ("web", "--roles", "read"), "keys list": (),
    "keys revoke": ("web",), "submit": ("echo",), "show": ("T",), "explain": ("T",), "watch": ("T",), "list": (),
    "stats": (), "top": ("--once",), "queues list": (), "queues show": ("q",), "queues tenants": (),
    "queues pause": ("q",), "queues resume": ("q",), "queues set": ("q", "--bound", "5"),
    "queues purge": ("q", "--yes"), "circuits list": (), "circuits set": ("t",), "circuits open": ("t",),
    "circuits close": ("t",), "circuits remove": ("t",),
    "workers list": (), "workers show": ("w",), "workers drain": ("w",), "workers forget": ("w",), "autoscale": (),
    "workers pause": ("w",), "workers resume": ("w",), "cancel": ("T",),
    "prioritize": ("T", "--priority", "high"), "replay": ("T",), "discard": ("T", "--yes"), "dlq list": (),
    "dlq show": ("T",), "dlq groups": (), "dlq replay": ("T",), "dlq discard": ("T", "--yes"), "operations list": (),
    "operations show": ("o",), "operations pause": ("o",), "operations resume": ("o",), "operations cancel": ("o",),
    "schedule add": ("s", "echo", "--cron", "@daily"), "schedule list": (), "schedule show": ("s",),
    "schedule pause": ("s",), "schedule resume": ("s",), "schedule remove": ("s",), "schedule run-now": ("s",),
    "schedule preview": ("s",), "quarantine list": (), "quarantine show": ("key/k",), "quarantine export": ("key/k",),
    "quarantine restore": ("key/k",), "quarantine discard": ("key/k", "--yes"), "rebuild": (), "migrate": (),
    "doctor": (), "config": (), "version": (), "check": ("builtin",), "types list": (), "types show": ("t",),
    "types remove": ("t",),
}  # fmt: skip
"""Every command, with arguments that lead it to its store."""

RUNNING: Final = frozenset({"up", "worker", "serve", "top", "watch"})
"""Those that go on while a store is away."""

TASK: Final = "019a85f3c2d08000a3d25f1e9c7b4a60"


def commands(app: App, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name in app:
        if name.startswith("-"):
            continue
        if [each for each in app[name] if not each.startswith("-")]:
            yield from commands(app[name], (*path, name))
        else:
            yield " ".join((*path, name))


def arguments_of(command: str) -> list[str]:
    return [*command.split(), *(TASK if word == "T" else word for word in ARGUMENTS[command])]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def has_canary(said: object) -> bool:
    return CANARY.lower() in str(said).lower()


def test_every_command_has_its_row() -> None:
    assert set(commands(program())) == set(ARGUMENTS)


@pytest.mark.parametrize("command", ARGUMENTS)
def test_no_command_says_the_secret_of_a_store_that_it_cannot_use(
    folder: Folder, command: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = ("redis://u:$@127.0.0.1:1/0?timeout=0.05", "postgresql://u:$@127.0.0.1:1/db?timeout=0.1&password=$")
    forms = [each.replace("$", CANARY) for each in away if command not in RUNNING]
    for url in (*forms, *REFUSED):
        for options in ((), ("--json",)):
            ended = folder.quick(*arguments_of(command), "--store", url, *options)
            assert not has_canary(ended), (url, ended)
            assert ended.code != 0 or command in ("check", "config", "version", "doctor", "migrate"), (url, ended)
    monkeypatch.setenv("FAIRLEAD_STORE", REFUSED[0])
    monkeypatch.setenv("FAIRLEAD_JOURNAL", f"postgresql://u:{CANARY}@h/db?password={CANARY}")
    monkeypatch.setenv("FAIRLEAD_SMTP_URL", f"smtp://u:{CANARY}@h")
    monkeypatch.setenv("FAIRLEAD_API_KEY", CANARY)
    assert not has_canary(folder.quick(*arguments_of(command)))
    assert not has_canary(caplog.text)


REFUSED: Final = tuple(
    form.replace("$", CANARY)
    for form in (
        "postgresql+psycopg://u:$@h/db", "redis://u:12/$@h", "redis://u:$@h/nonsense",
        "postgresql://h/db?password=$%zz", "host=h password=$",
    )
)  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_no_error_nor_what_led_to_it_tells_the_secret_of_a_url(url: str) -> None:
    ways: tuple[Callable[[], Any], ...] = (
        lambda: check_url(url),
        lambda: check_store(url, None),
        lambda: check_journal("redis://127.0.0.1", url),
        lambda: check_journal(url, f"postgresql://u:{CANARY}@h/db"),
        lambda: parse(url),
        lambda: parse_journal(url),
        lambda: parse_address(url),
        lambda: parse_smtp_url(url),
        lambda: parse_smtp_url(url.replace("redis", "smtp")),
        lambda: Mailer("smtp://h", url),
        lambda: fairlead.Fairlead(url),
        lambda: fairlead.Fairlead("redis://127.0.0.1", journal=url),
        lambda: connect(url, Settings()),
        lambda: load({"store": url, "journal": url, "smtp_url": url, "email_from": url}, {}, Path("/nowhere")),
        lambda: load({"concurrency": url}, {}, Path("/nowhere")),
        lambda: load({}, {"FAIRLEAD_PORT": url, "FAIRLEAD_API_KEY": url}, Path("/nowhere")),
        lambda: unreachable(Address(url, CANARY), OSError(url)),
    )
    for way in ways:
        try:
            made = way()
        except (FairleadError, ValueError) as error:
            told = "".join(traceback.format_exception(error))
            assert not has_canary(f"{error} {error!r} {error.args}"), error
            assert isinstance(error, FairleadError) or not has_canary(error)
            assert not has_canary(_without_code(told)), told
        else:
            assert not has_canary(repr(made)), made
            assert not has_canary([*made.entries()] if hasattr(made, "entries") else ""), made


async def test_no_store_that_is_away_tells_its_secret() -> None:
    for form in URLS:
        url = form if "timeout=" in form else f"{form}{'&' if '?' in form else '?'}timeout=0.1"
        if "127.0.0.1:1" not in url or url.startswith(("http", "sqlite")):
            continue
        try:
            store = await open_store(url)
            await store.scan("key")
        except (FairleadError, ValueError) as error:
            assert not has_canary(_without_code("".join(traceback.format_exception(error)))), url


def test_no_value_shows_a_secret() -> None:
    login = f"u:{CANARY}@"
    key = ApiKey(id="k", name="web", roles=(Role.READ,), created_at=0, digest="0" * 64)
    for value in (
        parse(f"postgresql://{login}h/db?password={CANARY}"),
        parse_journal(f"postgresql://{login}h/db?password={CANARY}"),
        parse_address(f"redis+sentinel://{login}h/main?sentinel_password={CANARY}"),
        parse_smtp_url(f"smtp://{login}h"),
        BuiltinSettings(smtp_url=f"smtp://{login}h"),
        Address("https://h", CANARY),
        Brief(f"redis://{login}h", Settings(), Remote("w", CANARY), f"postgresql://{login}h/db"),  # type: ignore[arg-type]
        NewKey(key, CANARY),
        LoginRequest(key=CANARY),
        Session("k", 0, CANARY),
        SessionShown(name="web", roles=[], key_needed=False, csrf_token=CANARY),
        load({"store": f"redis://{login}h", "api_key": CANARY, "smtp_url": f"smtp://{login}h"}, {}, Path("/nowhere")),
        fairlead.Fairlead(f"redis://{login}h", journal=f"postgresql://{login}h/db?password={CANARY}"),
        Connection(f"redis://{login}h", Settings()),
    ):
        assert not has_canary(f"{value!r} {value!s} {getattr(value, '__rich_repr__', tuple)()!r}"), type(value)
        rich = getattr(value, "__rich_repr__", None)
        assert rich is None or not has_canary(list(rich()))


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()], ids=["text", "json"])
def test_no_log_line_holds_a_secret_whoever_logs_it(formatter: logging.Formatter) -> None:
    for url in URLS:
        try:
            raise RuntimeError(f"cannot use {url!r}") from OSError(url)
        except RuntimeError as error:
            record = logging.LogRecord(
                "x", 40, __file__, 1, "at %s: %r", (url, {"url": url}), (type(error), error, None)
            )
        record.url = url
        record.more = {"url": [url], "password": CANARY}
        line = formatter.format(record)
        assert not has_canary(line), line
        if isinstance(formatter, JsonFormatter):
            assert json.loads(line)["url"]


def _without_code(told: str) -> str:
    """A traceback without the lines of source that it quotes: a test's own code may say what it likes."""
    return "\n".join(line for line in told.splitlines() if not line.startswith("    "))
