"""Processes of every kind are killed amid their work, on every store: the checker finds nothing."""

from __future__ import annotations

import pytest

from fairlead.core.errors import InvalidSettings
from tests.chaos.campaign.campaign import STORES, Report, hold, table


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_few_kills_leave_no_fault(store: str) -> None:
    assert_without_fault(hold(store, kills=4), kills=4)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_nor_where_tenants_share_the_queue(store: str) -> None:
    assert_without_fault(hold_fair(store, kills=4), kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("store", STORES)
def test_a_hundred_kills_leave_no_fault_where_tenants_share_the_queue(store: str) -> None:
    assert_without_fault(hold_fair(store, kills=120), kills=100)


@pytest.mark.soak
@pytest.mark.parametrize("store", STORES)
def test_a_hundred_kills_leave_no_fault(store: str) -> None:
    assert_without_fault(hold(store, kills=120), kills=100)


def hold_fair(store: str, kills: int) -> Report:
    try:
        return hold(store, kills, fair=True)
    except InvalidSettings as error:  # The store gives no turns.
        pytest.skip(str(error))


def assert_without_fault(report: Report, kills: int) -> None:
    print(f"\n{table([report])}")
    assert sum(report.kills.values()) >= kills
    assert report.counts.acknowledged > 0
    assert not report.faults
