"""Every endpoint, with no key, each wrong role and each right one: all of it from the table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pytest

from fairlead.core.tenancy import Role
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.endpoint import Served
from tests.server.doors import Doors

ANY_ID: Final = "01a1de8543e98af180df27e580779234"
GUARDED: Final = [endpoint for endpoint in ENDPOINTS if endpoint.role is not None]
PUBLIC: Final = [endpoint for endpoint in ENDPOINTS if endpoint.role is None]
OPEN_API: Final = {"/api/v1/session"}
"""The paths of the API that must answer whoever has no key yet."""
DENIED: Final = (401, 403)


def named(endpoint: Served[Any, Any]) -> str:
    return f"{endpoint.method} {endpoint.path}"


async def answered(endpoint: Served[Any, Any], roles: Sequence[Role] | None) -> tuple[int, dict[str, Any] | None]:
    """How the endpoint answers someone with these roles, or with no key at all."""
    doors = Doors()
    # Whatever waits or streams ends at once.
    doors.state.stopping.set()
    admin = await doors.key(Role.ADMIN)
    key = None if roles is None else (await doors.key(*roles)).text
    path = re.sub(r"\{[^}]*\}", ANY_ID, endpoint.path)
    said = await doors.call(endpoint.method, path, key=key)
    assert admin.text.encode() not in said.body
    return said.status, said.json if said.status in DENIED else None


def test_all_that_is_not_for_everybody_has_a_role() -> None:
    assert GUARDED and PUBLIC
    paths = {endpoint.path for endpoint in PUBLIC if endpoint.path.startswith(("/api/", "/internal/"))}
    assert paths <= OPEN_API
    assert {endpoint.role for endpoint in GUARDED if endpoint.path.startswith("/internal/")} <= {Role.WORK}


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
async def test_no_key_is_refused(endpoint: Served[Any, Any]) -> None:
    assert (await answered(endpoint, None))[0] == 401


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
async def test_each_wrong_role_is_refused_and_told_the_right_one(endpoint: Served[Any, Any]) -> None:
    wrong = [role for role in Role if role not in (endpoint.role, Role.ADMIN)]
    for roles in [*([role] for role in wrong), wrong]:
        status, problem = await answered(endpoint, roles)
        assert status == 403 and problem is not None
        assert f"the role {endpoint.role}" in problem["detail"]


@pytest.mark.parametrize("endpoint", GUARDED, ids=named)
async def test_each_right_role_is_let_in(endpoint: Served[Any, Any]) -> None:
    assert endpoint.role is not None
    for roles in ([endpoint.role], [Role.ADMIN], list(Role)):
        status, problem = await answered(endpoint, roles)
        assert status not in DENIED, problem


@pytest.mark.parametrize("endpoint", PUBLIC, ids=named)
async def test_what_is_for_everybody_asks_nobody(endpoint: Served[Any, Any]) -> None:
    for roles in (None, [Role.READ]):
        status, problem = await answered(endpoint, roles)
        assert status not in DENIED, problem
