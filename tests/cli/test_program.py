"""The program as a whole: help, errors, exit codes, configuration."""

from __future__ import annotations

import importlib
import inspect
import json
import signal
import subprocess
import sys

import fairlead
from fairlead.app.config_keys import KEYS
from fairlead.cli.options import TAKING_ANY
from fairlead.cli.program import COMMANDS, OK, run
from tests.cli.running import COMMAND, Folder


def test_help_tells_of_every_command(folder: Folder) -> None:
    text = folder.ok("--help").out
    assert [name for name in COMMANDS if f" {name} " not in text] == []
    assert folder.ok().out == text, "no command at all is a question"


def test_version(folder: Folder) -> None:
    assert folder.ok("version").out == f"fairlead {fairlead.__version__}\n"
    assert folder.quick("version", "--json").json["version"] == fairlead.__version__
    assert folder.ok("--version").out.strip() == fairlead.__version__


def test_what_is_unknown_is_misuse_and_the_nearest_is_named(folder: Folder) -> None:
    ended = folder.run("sumbit", "echo")
    assert ended.code == 2 and 'Did you mean "submit"?' in ended.error
    ended = folder.quick("stats", "--sore", "x")
    assert ended.code == 2 and "Did you mean --store?" in ended.error
    ended = folder.run("worker", "tasks:app", "--lease-secnds", "5")
    assert ended.code == 2 and "did you mean --lease-seconds?" in ended.error


def test_the_commands_that_take_any_setting_are_known() -> None:
    takes_any = set()
    for name, (_, place) in COMMANDS.items():
        module, _, function = place.partition(":")
        parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in parameters):
            takes_any.add(name)
    assert takes_any == TAKING_ANY


def test_a_switch_needs_no_value(folder: Folder) -> None:
    for flags in (("--admission",), ("--admission", "--port", "9000"), ("--admission", "true"), ("--admission=true",)):
        shown = folder.quick("config", *flags, "--json").json["admission"]
        assert (shown["value"], shown["origin"]) == (True, "--admission"), flags
    assert folder.quick("config", "--admission", "false", "--json").json["admission"]["value"] is False
    assert "use true or false" in folder.quick("config", "--admission", "maybe").error
    assert "--port requires an argument" in folder.quick("config", "--port").error
    with folder.start("serve", "--port", "0", "--insecure", "--try-it", "--json", "--admission") as serving:
        serving.find('"url"')
        serving.send(signal.SIGTERM)
        assert serving.wait() == 0


def test_errors_are_json_when_asked_for(folder: Folder) -> None:
    ended = folder.run("show", "0" * 32, "--json")
    assert (ended.code, ended.out) == (2, "")
    assert list(json.loads(ended.err)) == ["error"]


def test_looking_at_a_store_that_is_not_there_makes_none(folder: Folder) -> None:
    for command in (("list",), ("stats",), ("cancel", "01a1de8543e98af180df27e580779234")):
        ended = folder.quick(*command)
        assert ended.code == 1 and "does not exist" in ended.error
    assert list(folder.path.iterdir()) == []


def test_a_store_that_cannot_be_is_an_error(folder: Folder) -> None:
    assert "unknown scheme" in folder.quick("list", "--store", "mysql://x").error
    assert "inside one process" in folder.quick("submit", "echo", "--store", "memory://").error
    folder.write("text.db", "this is no database at all, whatever its name says" * 100)
    ended = folder.quick("list", "--store", "sqlite:///text.db")
    assert ended.code == 1 and "text.db" in ended.error


def test_a_task_that_is_not_there_is_not_found(folder: Folder) -> None:
    folder.submit("echo")
    ended = folder.run("show", "01a1de8543e98af180df27e580779234")
    assert ended.code == 1 and ended.error.startswith("task 01a1de8543e98af180df27e580779234 not found")


def test_the_store_comes_from_flag_variable_file_or_default_in_that_order(folder: Folder) -> None:
    folder.write("fairlead.toml", 'store = "sqlite:///file.db"\n')
    folder.ok("submit", "echo")
    folder.ok("submit", "echo", FAIRLEAD_STORE="sqlite:///variable.db")
    folder.ok("submit", "echo", "--store", "sqlite:///flag.db", FAIRLEAD_STORE="sqlite:///variable.db")
    for name in ("file.db", "variable.db", "flag.db"):
        assert len(folder.tasks(name)) == 1
    folder.write("other.toml", 'store = "sqlite:///other.db"\n')
    folder.ok("submit", "echo", "--config", "other.toml")
    assert len(folder.tasks("other.db")) == 1


def test_config_shows_every_setting_and_its_origin(folder: Folder) -> None:
    folder.write("fairlead.toml", "concurrency = 3\n[retention]\ncompleted_seconds = 60.0\n")
    flags = ("--lease-seconds", "50", "--smtp-url", "smtp://me:secret@example.com:587")
    shown = folder.ok("config", "--json", *flags, FAIRLEAD_QUEUES="a,b").json
    assert list(shown) == list(KEYS)
    assert (shown["queues"]["value"], shown["queues"]["origin"]) == (["a", "b"], "FAIRLEAD_QUEUES")
    assert (shown["lease_seconds"]["value"], shown["lease_seconds"]["origin"]) == (50.0, "--lease-seconds")
    assert shown["concurrency"]["origin"].endswith("fairlead.toml")
    assert shown["store"]["origin"] == "default" and shown["store"]["about"]
    text = folder.quick("config", *flags).out
    assert "secret" not in text and "me:***@example.com" in text
    assert [key for key in KEYS if f"\n{key} " not in text] == []
    ended = folder.run("config", FAIRLEAD_QUEUE="x")
    assert ended.code == 2 and "did you mean FAIRLEAD_QUEUES?" in ended.error


def test_a_reader_that_has_heard_enough_ends_it_quietly(folder: Folder) -> None:
    folder.submit("--from-file", str(folder.write("tasks.jsonl", '{"type":"echo"}\n' * 3_000)))
    command = [*COMMAND, "list", "--json", "--limit", "3000"]
    with subprocess.Popen(
        command, cwd=folder.path, env=folder.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_the_library_does_not_load_what_only_the_command_line_needs() -> None:
    script = "import sys, fairlead; print([name for name in ('cyclopts', 'rich') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_a_command_without_a_terminal_does_not_load_rich(folder: Folder) -> None:
    script = "import sys; from fairlead.cli.program import run; run(['config']); print('rich' in sys.modules)"
    output = subprocess.check_output([sys.executable, "-c", script], text=True, cwd=folder.path, env=folder.environment)
    assert output.endswith("\nFalse\n")


def test_run_answers_with_the_exit_code() -> None:
    assert run(["version"]) == OK
