"""Moments as they are shown."""

from __future__ import annotations

import pytest

from fairlead.cli.times import moment
from fairlead.core.instant import LATEST
from fairlead.wire.text import instant_of, iso, parse_iso


@pytest.mark.parametrize(("at", "shown"), [(-(2**62), 0), (-1, 0), (0, 0), (LATEST, LATEST), (2**62, LATEST)])
def test_every_number_can_be_shown(at: int, shown: int) -> None:
    assert parse_iso(iso(at)) == shown
    assert instant_of(moment(at)) == shown
