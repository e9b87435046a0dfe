"""A folder to run the program in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Folder, folders


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    yield from folders(tmp_path)
