"""Sessions of browsers: a cookie that scripts cannot read, good for what its key is good for, and for no other page."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.admin.keys.sessions import MOST_PER_KEY, name_of
from fairlead.core.instant import DAY, HOUR
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import COOKIE, NOBODY
from fairlead.server.auth.gate import Gate
from fairlead.server.http.problems import Refusal
from fairlead.server.settings import ServerSettings
from tests.server.doors import HOST, Doors, websocket

SAME = f"http://{HOST}"


async def opened(doors: Doors, *roles: Role, **options: Any) -> tuple[str, str]:
    """A session: its cookie and its token."""
    said = await doors.log_in((await doors.key(*roles, **options)).text)
    assert said.status == 201, said
    return said.cookie, said.json["csrf_token"]


async def test_a_key_is_exchanged_for_a_cookie() -> None:
    doors = Doors()
    made = await doors.key(Role.SUBMIT, Role.READ, name="web", tenant="acme")
    said = await doors.log_in(made.text)
    assert said.status == 201
    shown = {"name": "web", "roles": ["submit", "read"], "tenant": "acme", "key_needed": False}
    assert shown.items() <= said.json.items()
    assert made.text.encode() not in said.body and made.text not in said.headers["set-cookie"]
    attributes = set(said.headers["set-cookie"].split("; ")[1:])
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} == attributes
    again = await doors.call("GET", "/api/v1/session", cookie=said.cookie)
    assert again.json == said.json


async def test_over_tls_the_cookie_stays_on_tls_and_below_a_proxys_path() -> None:
    doors = Doors()
    text = (await doors.key()).text
    said = await doors.log_in(text, scheme="https", root_path="/fairlead")
    assert {"Secure", "Path=/fairlead"} <= set(said.headers["set-cookie"].split("; "))


async def test_a_wrong_key_opens_no_session() -> None:
    doors = Doors()
    await doors.key()
    refused = await doors.log_in("fl_nobody11_x")
    assert refused.status == 401 and "set-cookie" not in refused.headers


async def test_a_session_may_do_what_its_key_may() -> None:
    doors = Doors()
    cookie, token = await opened(doors, Role.SUBMIT)
    assert (await doors.submit(cookie=cookie, x_csrf_token=token, origin=SAME)).status == 201
    cookie, token = await opened(doors, Role.READ)
    assert (await doors.submit(cookie=cookie, x_csrf_token=token, origin=SAME)).status == 403


async def test_a_change_needs_the_token_of_its_session_and_a_page_of_this_server() -> None:
    doors = Doors()
    cookie, token = await opened(doors, Role.SUBMIT)
    _, other = await opened(doors, Role.SUBMIT)
    for headers in (
        {},
        {"x_csrf_token": ""},
        {"x_csrf_token": other},
        {"x_csrf_token": token, "origin": "https://evil.example.com"},
        {"x_csrf_token": token, "origin": "null"},
        {"x_csrf_token": token, "sec_fetch_site": "cross-site"},
        {"x_csrf_token": token, "sec_fetch_site": "same-site"},
    ):
        refused = await doors.submit(cookie=cookie, **headers)
        assert refused.status == 403 and refused.json["type"].endswith("wrong-origin"), headers


async def test_a_page_elsewhere_cannot_log_a_browser_in_or_out() -> None:
    doors = Doors()
    text = (await doors.key()).text
    for headers in ({"origin": "https://evil.example.com"}, {"sec_fetch_site": "cross-site"}):
        assert (await doors.log_in(text, **headers)).status == 403
        assert (await doors.call("DELETE", "/api/v1/session", **headers)).status == 403


async def test_revoking_the_key_ends_its_sessions() -> None:
    doors = Doors()
    made = await doors.key()
    cookie = (await doors.log_in(made.text)).cookie
    await doors.keyring.revoke(made.key.id)
    doors.grow_stale()
    assert (await doors.submit(cookie=cookie)).status == 401
    assert (await doors.call("GET", "/api/v1/session", cookie=cookie)).json["key_needed"]


async def test_of_a_revoked_key_no_session_is_kept() -> None:
    doors = Doors()
    made, other = await doors.key(), await doors.key()
    for text in (made.text, made.text, other.text):
        await doors.log_in(text)
    await doors.keyring.revoke(made.key.id)
    assert [session.key for session in (await doors.keyring.sessions.read()).values()] == [other.key.id]


async def test_a_session_ends_by_itself_and_with_its_key() -> None:
    doors = Doors(ServerSettings(rate_limit=0, session_seconds=3600))
    cookie, token = await opened(doors)
    doors.clock.advance(HOUR - 1_000_000)
    assert (await doors.submit(cookie=cookie, x_csrf_token=token)).status == 201
    doors.clock.advance(1_000_000)
    assert (await doors.submit(cookie=cookie, x_csrf_token=token)).status == 401
    longer = Doors(ServerSettings(rate_limit=0, session_seconds=30 * 86_400))
    cookie, token = await opened(longer, expires=longer.clock.now() + DAY)
    longer.clock.advance(DAY)
    assert (await longer.submit(cookie=cookie, x_csrf_token=token)).status == 401


async def test_a_cookie_cannot_be_made_up_or_changed() -> None:
    doors = Doors()
    cookie, _ = await opened(doors)
    token = cookie.partition("=")[2]
    (record,) = await doors.store.scan("session")
    for forged in (
        token[:-1],
        token + "A",
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token[::-1],
        record.name,
        "A" * 43,
        "",
        "...",
        "\u00e9",
    ):
        said = await doors.call("GET", "/api/v1/session", cookie=f"{COOKIE}={forged}")
        assert said.json["key_needed"], forged


async def test_another_server_of_the_store_knows_the_session() -> None:
    doors = Doors()
    cookie, token = await opened(doors, Role.READ)
    elsewhere = Gate(doors.keyring, ServerSettings())
    principal, session = await elsewhere.identify({"headers": [(b"host", HOST.encode()), (b"cookie", cookie.encode())]})
    assert principal.roles == {Role.READ}
    assert session is not None and session.csrf_token == token


async def test_logging_out_ends_the_session_and_makes_the_browser_forget() -> None:
    doors = Doors()
    cookie, token = await opened(doors)
    other, _ = await opened(doors)
    said = await doors.call("DELETE", "/api/v1/session", cookie=cookie)
    assert said.status == 204 and said.cookie == f"{COOKIE}="
    assert "Max-Age=0" in said.headers["set-cookie"]
    assert (await doors.submit(cookie=cookie, x_csrf_token=token)).status == 401, "a stolen cookie ends with it"
    assert (await doors.call("GET", "/api/v1/session", cookie=other)).json["name"] == "test"
    assert len(await doors.store.scan("session")) == 1
    assert (await doors.call("DELETE", "/api/v1/session")).status == 204, "who is not logged in is logged out"


async def test_another_server_forgets_within_seconds_a_session_that_was_ended() -> None:
    doors = Doors()
    cookie, _ = await opened(doors)
    elsewhere = Gate(doors.keyring, ServerSettings())
    scope = {"headers": [(b"host", HOST.encode()), (b"cookie", cookie.encode())]}
    assert (await elsewhere.identify(scope))[0] is not NOBODY
    await doors.call("DELETE", "/api/v1/session", cookie=cookie)
    doors.grow_stale()
    assert (await elsewhere.identify(scope))[0] is NOBODY


async def test_a_session_that_is_ended_while_sessions_are_read_stays_ended() -> None:
    doors = Doors()
    cookie, token = await opened(doors)
    doors.grow_old()
    # It reads what is old beside its answer; the session is ended before that is read.
    await doors.submit(cookie=cookie, x_csrf_token=token)
    await doors.call("DELETE", "/api/v1/session", cookie=cookie)
    assert (await doors.submit(cookie=cookie, x_csrf_token=token)).status == 401


async def test_requests_with_a_cookie_do_not_ask_the_store_each() -> None:
    doors = Doors()
    cookie, token = await opened(doors)
    await doors.submit(cookie=cookie, x_csrf_token=token)
    before = doors.store.session_scans
    for _ in range(20):
        assert (await doors.submit(cookie=cookie, x_csrf_token=token)).status == 201
    assert doors.store.session_scans == before
    for number in range(100):
        await doors.submit(cookie=f"{COOKIE}={number:043}")
    assert doors.store.session_scans <= before + 6, "nor do made up ones"


@pytest.mark.parametrize("broken", [b"?", b"", b"\xc1\x02"])
async def test_a_session_whose_record_was_damaged_is_over(broken: bytes) -> None:
    doors = Doors()
    cookie, _ = await opened(doors)
    other, _ = await opened(doors)
    record = next(each for each in await doors.store.scan("session") if each.name == name_of(cookie.partition("=")[2]))
    await doors.store.put("session", record.name, broken)
    doors.grow_stale()
    assert (await doors.call("GET", "/api/v1/session", cookie=cookie)).json["key_needed"]
    assert (await doors.call("GET", "/api/v1/session", cookie=other)).json["name"] == "test"


async def test_a_key_that_opens_very_many_sessions_ends_its_oldest() -> None:
    doors = Doors()
    other, _ = await opened(doors, Role.READ)
    made = await doors.key(Role.READ)
    cookies = []
    for _ in range(MOST_PER_KEY + 2):
        doors.clock.advance(1_000_000)
        cookies.append((await doors.log_in(made.text)).cookie)
    doors.grow_stale()
    assert len(await doors.store.scan("session")) == MOST_PER_KEY + 1
    shown = [
        (await doors.call("GET", "/api/v1/session", cookie=cookie)).json["key_needed"]
        for cookie in (cookies[1], cookies[2], cookies[-1], other)
    ]
    assert shown == [True, False, False, False]


async def test_logging_in_counts_against_the_limit_of_the_key() -> None:
    doors = Doors(ServerSettings(rate_limit=1, rate_burst=2))
    text = (await doors.key()).text
    assert [(await doors.log_in(text)).status for _ in range(3)] == [201, 201, 429]


async def test_a_page_learns_whether_it_must_ask_for_a_key() -> None:
    doors = Doors()
    assert (await doors.call("GET", "/api/v1/session")).json["roles"] == ["admin"]
    text = (await doors.key(Role.READ, name="viewer")).text
    doors.grow_stale()
    nobody = (await doors.call("GET", "/api/v1/session")).json
    assert nobody["key_needed"] and nobody["name"] is None and nobody["roles"] == []
    assert (await doors.call("GET", "/api/v1/session", key=text)).json["name"] == "viewer"


async def test_a_websocket_with_a_cookie_must_come_from_a_page_of_this_server() -> None:
    doors = Doors()
    cookie, _ = await opened(doors, Role.READ)
    assert (await doors.gate.admit_websocket(websocket(cookie=cookie, origin=SAME), Role.READ)).roles == {Role.READ}
    for headers in ({}, {"origin": "https://evil.example.com"}, {"origin": "http://127.0.0.1:1"}, {"origin": "null"}):
        with pytest.raises(Refusal) as refused:
            await doors.gate.admit_websocket(websocket(cookie=cookie, **headers), Role.READ)
        assert refused.value.status == 403
