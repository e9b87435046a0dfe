"""What Debian's packages hold, without root and without installing them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_FETCH_WITHIN: Final = 300.0


def unpack(folder: Path, content: Path, *names: str) -> None:
    """Fetch packages into a folder of the caller's, and take all they hold out of them.

    Raises OSError or subprocess.SubprocessError where that is not possible.
    """
    try:
        _apt(folder, "download", *names)
    except subprocess.SubprocessError:
        # A machine whose lists of packages are gone, as in most images: read them into a folder of our own.
        own = [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache"]
        options = [word for option in own for word in ("-o", option)]
        for place in ("lists/partial", "cache/archives/partial"):
            (folder / place).mkdir(parents=True)
        _apt(folder, *options, "update")
        _apt(folder, *options, "download", *names)
    content.mkdir(parents=True, exist_ok=True)
    for package in folder.glob("*.deb"):
        _run(folder, "dpkg", "-x", str(package), str(content))


def _apt(folder: Path, *arguments: str) -> None:
    # Root's apt would give up its rights to a user who cannot write here.
    _run(folder, "apt-get", "-q", "-o", "APT::Sandbox::User=", *arguments)


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_FETCH_WITHIN)
