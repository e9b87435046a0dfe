"""Whatever word is typed, a command does what it says or refuses it in one line: no word is a traceback."""

from __future__ import annotations

from typing import Final

import pytest

from tests.cli.running import Folder

WORDS: Final = (
    *("", "nan", "-1", "2.5", "1e400", "9" * 5_000, "\udcff", "a=\udcff", "x" * 1_000, "\N{FULLWIDTH DIGIT NINE}"),
    *("\x1b[31mx", "a,,b", "=a", "10/s", "+9999999999999d", "(", "[]"),
)
OPTIONS: Final = {
    "submit work": (
        *("--after", "--concurrency-key", "--delay", "--idempotency-key", "--max-retries", "--on-failure", "--params"),
        *("--priority", "--queue", "--requires", "--retry-rule", "--run-at", "--tag", "--timeout", "--from-file"),
    ),
    "schedule add nightly @daily work": (
        *("--end", "--jitter", "--max-retries", "--missed", "--missed-cap", "--overlap", "--params", "--start"),
        *("--queue", "--priority", "--timeout", "--timezone", "--requires", "--tag"),
    ),
    "queues set mail": (
        *("--bound", "--key-rate", "--key-running", "--max-crashes", "--max-retries", "--order", "--priority"),
        *("--rate", "--running", "--timeout", "--type-rate", "--type-running"),
    ),
    "circuits set work": ("--failure-ratio", "--min-outcomes", "--open-for", "--probes", "--window"),
    "keys create mine --roles=admin": ("--expires-at", "--rate-limit", "--tenant"),
    "keys create mine": ("--roles",),
    "list": (
        *("--cursor", "--created-after", "--created-before", "--limit", "--priority", "--query", "--queue", "--state"),
        *("--tag", "--type", "--worker"),
    ),
    "prioritize high --yes --query=type:x": ("--max-rate", "--canary", "--expect", "--as-of"),
    "dlq groups": ("--query",),
    "autoscale": ("--queue", "--within-seconds", "--capacity"),
    "schedule preview nightly": ("--count",),
    "stats": ("--store", "--journal", "--config"),
}
POSITIONS: Final = (
    *("submit", "submit work", "schedule show", "schedule pause", "schedule preview", "queues pause", "queues show"),
    *(
        "circuits open",
        "keys revoke",
        "show",
        "explain",
        "cancel",
        "replay",
        "discard",
        "workers show",
        "workers drain",
        "workers pause",
        "workers resume",
    ),
    *("operations show", "operations pause", "quarantine show", "quarantine discard", "prioritize high"),
)


def check(folder: Folder, *arguments: str) -> None:
    ended = folder.quick(*arguments)
    assert ended.code in (0, 1, 2), (arguments, ended)
    if ended.code:
        # A query is pointed at below the line that says what is wrong with it.
        assert ended.err.startswith("fairlead: "), (arguments, ended)


@pytest.mark.parametrize(("command", "option"), [(each, flag) for each, flags in OPTIONS.items() for flag in flags])
def test_an_option_takes_a_word_or_refuses_it(folder: Folder, command: str, option: str) -> None:
    folder.submit("work")
    for word in WORDS:
        check(folder, *command.split(), f"{option}={word}")


@pytest.mark.parametrize("command", POSITIONS)
def test_a_name_is_found_or_not(folder: Folder, command: str) -> None:
    folder.submit("work")
    for word in WORDS:
        if not word.startswith("-"):
            check(folder, *command.split(), word)


def test_what_counts_is_not_rounded(folder: Folder) -> None:
    folder.submit("work")
    for option in ("--canary", "--expect"):
        refused = folder.quick("prioritize", "--query", "type:work", "high", f"{option}=2.5")
        assert (refused.code, "2.5' is not a whole number" in refused.err) == (2, True)
