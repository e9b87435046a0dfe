"""Configurations of a program started in a folder, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlead.app.config import Configuration, load
from fairlead.core.errors import InvalidSettings


def read(
    folder: Path, file: str | None = None, flags: Mapping[str, object] | None = None, **environ: str
) -> Configuration:
    """The configuration of a program started in this folder."""
    if file is not None:
        (folder / "fairlead.toml").write_text(file, "utf-8")
    return load(flags, environ, folder)


def refusal(folder: Path, file: str | None = None, flags: Mapping[str, object] | None = None, **environ: str) -> str:
    """Why there is none."""
    with pytest.raises(InvalidSettings) as raised:
        read(folder, file, flags, **environ)
    return str(raised.value)
