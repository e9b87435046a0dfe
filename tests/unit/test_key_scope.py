"""Idempotency keys are of their queue and tenant, by names that never meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.instant import DAY, HOUR
from fairlead.core.tenancy import Phase, Upgrade, key_in, key_name
from fairlead.testing.builders import NOW

keys = st.text(min_size=1, max_size=40) | st.text(min_size=1, max_size=40).map(lambda text: f"\x1f{text}")
tenants = st.none() | st.text(min_size=1, max_size=40)


@given(keys, tenants, keys, tenants)
def test_two_names_are_the_same_only_for_one_key_of_one_tenant(
    key: str, tenant: str | None, other: str, another: str | None
) -> None:
    assert (key_name(key, tenant) == key_name(other, another)) == ((key, tenant) == (other, another))


@given(keys, tenants)
def test_the_key_is_in_its_name_as_it_was_given(key: str, tenant: str | None) -> None:
    assert key_in(key_name(key, tenant)) == key


def test_a_key_without_a_tenant_is_its_own_name() -> None:
    """So nothing changes for those who have no tenants."""
    assert key_name("order-17", None) == "order-17"


def test_a_tenant_is_not_told_by_a_name() -> None:
    assert "acme" not in key_name("order-17", "acme")


@pytest.mark.parametrize("retention", [HOUR, DAY])
def test_a_day_passes_in_which_older_servers_are_understood_and_one_in_which_their_keys_end(retention: int) -> None:
    upgrade = Upgrade(since=NOW)
    phases = [upgrade.phase(NOW + after, retention) for after in (0, DAY - 1, DAY, 2 * DAY - 1, 2 * DAY)]
    assert phases == [Phase.SHARED, Phase.SHARED, Phase.BOTH, Phase.BOTH, Phase.OWN]


def test_keys_that_are_held_for_longer_are_waited_for() -> None:
    upgrade = Upgrade(since=NOW)
    assert upgrade.phase(NOW + 6 * DAY, 7 * DAY) is Phase.SHARED
    assert upgrade.phase(NOW + 13 * DAY, 7 * DAY) is Phase.BOTH
    assert upgrade.phase(NOW + 14 * DAY, 7 * DAY) is Phase.OWN


def test_a_store_that_nobody_has_used_needs_no_time() -> None:
    assert Upgrade(since=None).phase(0, DAY) is Phase.OWN
