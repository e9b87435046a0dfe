"""What a browser has to load is small, whole and from the server alone."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Final

import pytest

from tests.dashboard.built import ROOT, assets_or_skip

LIMIT: Final = 150 * 1024


@pytest.fixture
def assets() -> Path:
    return assets_or_skip()


def test_all_of_it_is_at_most_150_kb_compressed(assets: Path) -> None:
    files = [assets / "index.html", *(file for file in (assets / "assets").iterdir() if file.suffix != ".gz")]
    total = sum(len(gzip.compress(file.read_bytes())) for file in files)
    assert total <= LIMIT, f"{total:,} bytes"


def test_what_is_sent_compressed_is_the_same(assets: Path) -> None:
    packed = list((assets / "assets").glob("*.gz"))
    assert packed
    for file in packed:
        assert gzip.decompress(file.read_bytes()) == file.with_suffix("").read_bytes()


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(assets: Path) -> None:
    index = (assets / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\ssrc=)", index) == []
    assert "<style" not in index and re.search(r"\s(style|on\w+)=", index) is None
    assert all(link.startswith("./assets/") for link in re.findall(r'(?:src|href)="([^"]*)"', index))


def test_the_lock_file_names_no_registry() -> None:
    lock = (ROOT / "dashboard" / "package-lock.json").read_text("utf-8")
    assert '"resolved"' not in lock
    assert '"integrity"' in lock
