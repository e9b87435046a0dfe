"""The doctor over HTTP."""

from __future__ import annotations

from fairlead.core.health.diagnosis import TIERS
from fairlead.core.tenancy import Role
from tests.server.doors import Doors
from tests.server.serving import Service


async def test_what_was_found_is_shown_with_its_tier(service: Service) -> None:
    shown = await service.get("/api/v1/doctor")
    assert shown["tier"]["name"] in {tier.name for tier in TIERS}
    levels = [finding["level"] for finding in shown["findings"]]
    assert shown["level"] == next(level for level in ("red", "yellow", "green") if level in levels)
    assert all(finding["remedy"] for finding in shown["findings"] if finding["level"] != "green")


async def test_a_key_of_one_tenant_does_not_see_what_concerns_all() -> None:
    doors = Doors()
    key = await doors.key(Role.ADMIN, tenant="acme")
    assert (await doors.call("GET", "/api/v1/doctor", key=key.text)).status == 403
