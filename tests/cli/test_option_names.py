"""An option has one meaning, whichever command has it; and what had another name is told its new one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from cyclopts import App

from fairlead.app.config_keys import KEYS
from fairlead.cli import reference
from fairlead.cli.program import RENAMED, program
from tests.cli.running import Folder

A_FIELD_OF_A_TASK: Final = {
    "--queue": {"submit", "schedule add", "list", "autoscale"},
    "--type": {"list", "queues pause", "queues resume"},
    "--priority": {"submit", "schedule add", "list", "queues set", "prioritize", "replay", "dlq replay"},
    "--tag": {"submit", "schedule add", "list"},
    "--timeout": {"submit", "schedule add", "queues set"},
    "--max-retries": {"submit", "schedule add", "queues set"},
    "--max-crashes": {"queues set"},
}
"""Options that mean one field of a task, and the commands that give it, look for it, or say what it is by default."""


class Use(NamedTuple):
    """An option of a command."""

    option: str
    command: str
    help: str
    kind: str

    @property
    def meaning(self) -> tuple[str, str]:
        """What it stands for: what its help begins with, and what is written after it."""
        return beginning(self.help), self.kind


def beginning(text: str) -> str:
    """What a text says first."""
    return re.split(r"[:;,.(]", text)[0].strip()


def commands(app: App, name: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    """Every command that does something, by its whole name."""
    if app.default_command is not None:
        yield " ".join(name), app
    for part in app:
        if not part.startswith("-"):
            yield from commands(app[part], (*name, part))


def uses() -> list[Use]:
    """Every option that people are shown, of every command."""
    return [
        Use(option, command, argument.parameter.help or "", argument.parameter.metavar or str(argument.hint))
        for command, app in commands(program())
        for argument in app.assemble_argument_collection(parse_docstring=True)
        if argument.parameter.show is not False
        for option in argument.names
        if option.startswith("-") and option not in argument.negatives
    ]


USES: Final = uses()


def test_every_command_was_looked_at() -> None:
    assert len({use.command for use in USES}) == len(list(commands(program()))) > 50


def test_an_option_means_the_same_in_every_command() -> None:
    meanings: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for use in USES:
        if use.command not in A_FIELD_OF_A_TASK.get(use.option, ()):
            meanings[use.option][use.meaning].append(use.command)
    assert {option: dict(found) for option, found in meanings.items() if len(found) > 1} == {}


def test_the_commands_with_an_option_that_means_a_field_are_those_that_are_named() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for use in USES:
        if use.option in A_FIELD_OF_A_TASK:
            found[use.option].add(use.command)
    assert found == A_FIELD_OF_A_TASK


def test_an_option_with_the_name_of_a_setting_means_that_setting() -> None:
    settings = {f"--{name.replace('_', '-')}": beginning(known.doc) for name, known in KEYS.items()}
    named = [use for use in USES if use.option in settings and use.option not in A_FIELD_OF_A_TASK]
    assert {use.option for use in named} >= {"--host", "--store", "--queues", "--rate-limit"}
    assert {use.option: use.help for use in named if beginning(use.help) != settings[use.option]} == {}


def test_a_flag_has_no_second_one_that_undoes_it() -> None:
    page = reference.page()
    assert "--empty-" not in page and set(re.findall(r"--no-[a-z-]+", page)) == {"--no-keeper"}


def test_time_to_run_and_time_to_wait_have_names_of_their_own(folder: Folder) -> None:
    submitted = folder.quick("submit", "echo", "--timeout", "7", "--wait", "--wait-timeout", "0.01", "--json")
    assert submitted.code == 1 and "has not ended" in submitted.err
    (task,) = folder.tasks()
    assert task.spec.timeout == 7_000_000


@pytest.mark.parametrize(("command", "option"), RENAMED)
def test_the_old_name_of_an_option_leads_to_the_new_one(folder: Folder, command: str, option: str) -> None:
    wholes = {"workers": "workers drain", "keys": "keys create mine --roles=read"}
    whole = wholes.get(command, command if command != "dlq" else "dlq list" if option == "--after" else "dlq replay")
    for written in ((option, "5"), (f"{option}=5",)):
        refused = folder.quick(*whole.split(), *written)
        assert refused.code == 2
        assert refused.error == f"Unknown option: {option}. It is called {RENAMED[command, option]} now."
