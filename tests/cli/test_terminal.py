"""What a person sees: colours, tables that fit, a progress bar."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

from tests.cli.running import COMMAND, PATIENCE, Folder

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(folder: Folder, *arguments: str, columns: int = 80) -> str:
    """What the program writes to a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in folder.environment.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder.path,
        env=environment | {"TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    written = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # How Linux says that the other side is closed.
            break
        if not chunk:
            break
        written += chunk
    os.close(master)
    assert process.wait(PATIENCE) == 0, written
    return written.decode().replace("\r\n", "\n")


def test_lists_are_coloured_and_fit_eighty_columns_with_whole_ids(folder: Folder) -> None:
    task_type = "a-type-with-a-name-that-is-much-too-long-for-a-narrow-terminal"
    task_id = folder.submit(task_type, "--queue", "a-queue-with-a-long-name-too")
    shown = on_terminal(folder, "list")
    assert "\x1b[" in shown
    plain = ESCAPE.sub("", shown).splitlines()
    assert max(map(len, plain)) <= 80
    assert plain[1].startswith(task_id) and "…" in plain[1] and "queued" in plain[1]
    wide = ESCAPE.sub("", on_terminal(folder, "list", columns=200))
    assert task_type in wide


def test_every_other_view_can_be_drawn(folder: Folder) -> None:
    file = folder.write("tasks.jsonl", '{"type": "echo"}\n' * 2_000)
    bar = on_terminal(folder, "submit", "--from-file", file.name)
    assert "submitting" in bar and "2,000 submitted" in bar
    submitted = ESCAPE.sub("", on_terminal(folder, "submit", "echo", "--delay", "60"))
    warning, _, said = submitted.partition("\n")
    assert "no worker is running" in warning
    task_id, _, rest = said.partition(" ")
    assert rest == f"is scheduled\nsee it with: fairlead show {task_id}\n"
    assert "submitted  20" in ESCAPE.sub("", on_terminal(folder, "show", task_id))
    assert "echo 2,000" in ESCAPE.sub("", on_terminal(folder, "stats"))
    config = ESCAPE.sub("", on_terminal(folder, "config")).splitlines()
    assert max(map(len, config)) <= 80 and "ABOUT" not in config[0]
