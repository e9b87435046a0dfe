"""Who may pass: with a key, with the right role; without one only where that is safe."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fairlead.core.errors import StoreUnavailable
from fairlead.core.instant import DAY, SECOND
from fairlead.core.tenancy import Role
from fairlead.server.auth.credentials import ANYBODY
from fairlead.server.http.problems import Refusal
from tests.server.doors import Doors, websocket


async def test_a_key_with_the_role_opens_and_tells_who_it_is() -> None:
    doors = Doors()
    made = await doors.key(Role.SUBMIT, name="web", tenant="acme")
    assert (await doors.submit(made.text)).status == 201
    scope = websocket(authorization=f"Bearer {made.text}")
    principal = await doors.gate.admit_websocket(scope, Role.SUBMIT)
    assert (principal.name, principal.tenant, principal.key) == ("web", "acme", made.key.id)
    assert principal.roles == {Role.SUBMIT} and not principal.keyless


async def test_without_a_key_the_answer_says_what_to_send() -> None:
    doors = Doors()
    await doors.key()
    refused = await doors.submit()
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="fairlead"'
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json["type"].endswith("unauthorized") and "Authorization: Bearer" in refused.json["remedy"]


async def test_what_is_no_key_of_this_store_is_refused_without_being_repeated() -> None:
    doors = Doors()
    made = await doors.key()
    wrong = [f"{made.text[:-1]}!", "fl_unknown1_" + "a" * 32, "nonsense", "", f"fl_{made.key.id}_"]
    for text in wrong:
        refused = await doors.submit(text)
        assert refused.status == 401 and "invalid_token" in refused.headers["www-authenticate"]
        assert not text or text.encode() not in refused.body
    basic = await doors.submit(authorization="Basic YTpi")
    assert basic.status == 401 and "Bearer" in basic.json["detail"]


async def test_a_wrong_role_is_told_which_one_is_needed() -> None:
    doors = Doors()
    refused = await doors.submit((await doors.key(Role.READ, Role.WORK, name="viewer")).text)
    assert refused.status == 403
    assert refused.json["detail"].startswith("the API key 'viewer' has the role read, work, and this requires")


async def test_admin_may_do_everything() -> None:
    doors = Doors()
    assert (await doors.submit((await doors.key(Role.ADMIN)).text)).status == 201


async def test_an_expired_key_is_over_at_its_moment() -> None:
    doors = Doors()
    text = (await doors.key(Role.SUBMIT, name="guest", expires=doors.clock.now() + DAY)).text
    doors.clock.advance(DAY - 1)
    assert (await doors.submit(text)).status == 201
    doors.clock.advance(1)
    refused = await doors.submit(text)
    assert refused.status == 401 and "'guest' has expired" in refused.json["detail"]


# When keys are looked up


async def test_a_revoked_key_stops_working_within_seconds() -> None:
    doors = Doors()
    made = await doors.key()
    assert (await doors.submit(made.text)).status == 201
    await doors.keyring.revoke(made.key.id)
    doors.grow_stale()
    assert (await doors.submit(made.text)).status == 401


async def test_keys_are_read_beside_the_requests_and_by_one_of_them() -> None:
    doors = Doors()
    made = await doors.key()
    await asyncio.gather(*(doors.submit(made.text) for _ in range(20)))
    assert doors.store.scans == 1
    await asyncio.gather(*(doors.submit(made.text) for _ in range(20)))
    assert doors.store.scans == 1, "they are fresh"
    doors.grow_old()
    await doors.keyring.revoke(made.key.id)
    before = doors.store.scans
    answers = await asyncio.gather(*(doors.submit(made.text) for _ in range(20)))
    assert answers[0].status == 201, "nobody waits for what is merely old"
    assert doors.store.scans == before + 1
    assert (await doors.submit(made.text)).status == 401


async def test_a_new_key_works_at_once() -> None:
    doors = Doors()
    await doors.submit((await doors.key()).text)
    assert (await doors.submit((await doors.key(Role.SUBMIT)).text)).status == 201


async def test_who_makes_keys_up_does_not_make_the_server_read_them_all_the_time() -> None:
    doors = Doors()
    await doors.key()
    for number in range(100):
        assert (await doors.submit(f"fl_madeup{number}_x")).status == 401
    assert doors.store.scans <= 6
    before = doors.store.scans
    doors.clock.advance(SECOND)
    for number in range(100):
        await doors.submit(f"fl_madeup{number}_x")
    assert doors.store.scans == before + 1


async def test_a_store_out_of_reach_is_not_mistaken_for_one_without_keys() -> None:
    doors = Doors()
    text = (await doors.key()).text
    doors.store.broken = StoreUnavailable("the store is away; try again")
    assert (await doors.submit()).status == 503
    doors.store.broken = None
    assert (await doors.submit(text)).status == 201
    doors.store.broken = StoreUnavailable("the store is away; try again")
    doors.grow_old()
    assert (await doors.submit(text)).status == 201, "what is known is good for a few seconds"
    doors.grow_stale()
    assert (await doors.submit(text)).status == 503


# Without keys


async def test_without_keys_anybody_on_the_machine_may_do_everything() -> None:
    doors = Doors()
    assert (await doors.submit()).status == 201
    assert await doors.gate.admit_websocket(websocket(), Role.ADMIN) == ANYBODY


async def test_from_the_first_key_on_every_call_needs_one_and_that_stays_so() -> None:
    doors = Doors()
    assert (await doors.submit()).status == 201
    made = await doors.key()
    doors.grow_stale()
    assert (await doors.submit()).status == 401
    await doors.keyring.revoke(made.key.id)
    doors.grow_stale()
    assert (await doors.submit()).status == 401, "revoking the last key opens nothing"


async def test_a_key_that_cannot_be_read_closes_the_door_as_one_that_can() -> None:
    for broken in (b"?", b"", b"\xc1\x02"):
        doors = Doors()
        await doors.keyring.create("web", [Role.ADMIN])
        (record,) = await doors.store.scan("key")
        await doors.store.put("key", record.name, broken)
        for _ in range(3):
            assert (await doors.submit()).status == 401
            doors.grow_stale()


async def test_beyond_loopback_no_keys_means_nobody() -> None:
    doors = Doors(keyless=False, hosts=None)
    refused = await doors.submit()
    assert refused.status == 401 and "fairlead keys create" in refused.json["remedy"]
    assert (await doors.call("GET", "/docs")).status == 200, "what is for everybody stays so"


async def test_insecure_means_anybody_by_whatever_name() -> None:
    doors = Doors(keyless=True, hosts=None)
    assert (await doors.submit(host="queue.example.com")).status == 201


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8420", "localhost:8420", "LOCALHOST", "[::1]:8420", "127.9.9.9", "app.localhost:80"]
)
async def test_a_name_of_loopback_may_be_called_without_a_key(host: str) -> None:
    assert (await Doors().submit(host=host)).status == 201


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com", "127.0.0.1.evil.example.com", "localhost.evil.com:8420", "192.168.0.1", "", "[::2]", "::",
        "[::1].evil.com", "[::1]evil.com:8420", "[::1%evil.com]", "localhost@evil.com", "localhost:80:80",
    ],
)  # fmt: skip
async def test_a_name_that_was_bent_to_loopback_is_refused(host: str) -> None:
    refused = await Doors().submit(host=host)
    assert refused.status == 403 and "its own machine only" in refused.json["detail"]


@pytest.mark.parametrize(
    "header",
    ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-server", "x-real-ip",
     "x-client-ip", "true-client-ip", "cf-connecting-ip", "x-envoy-external-address", "forwarded", "via"],
)  # fmt: skip
async def test_what_says_that_a_proxy_passed_it_on_did_not_come_from_this_machine(header: str) -> None:
    refused = await Doors().submit(**{header.replace("-", "_"): "203.0.113.9"})
    assert refused.status == 403 and "through a proxy" in refused.json["detail"]


async def test_of_a_proxy_that_says_nothing_a_server_cannot_know() -> None:
    """The documentation says so. From the first key on it makes no difference."""
    doors = Doors()
    assert (await doors.submit(connection="close")).status == 201, "as nginx does by itself: Host 127.0.0.1, no header"
    await doors.key()
    doors.grow_stale()
    assert (await doors.submit(connection="close")).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example.com"},
        {"origin": "null"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"origin": "http://127.0.0.1:8420", "sec_fetch_site": "cross-site"},
        {"origin": "http://[::1].evil.com"},
        {"origin": "http://[::1]evil.com:80"},
    ],
)
async def test_a_page_of_another_site_cannot_use_a_browser_to_change_things(headers: dict[str, str]) -> None:
    doors = Doors()
    refused = await doors.submit(**headers)
    assert refused.status == 403 and refused.json["type"].endswith("wrong-origin")
    with pytest.raises(Refusal):
        await doors.gate.admit_websocket(websocket(**headers), Role.READ)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:8420", "sec_fetch_site": "same-origin"},
        {"origin": "http://localhost:5173", "sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
    ],
)
async def test_a_page_of_this_machine_can(headers: dict[str, str]) -> None:
    doors = Doors()
    assert (await doors.submit(**headers)).status == 201
    assert await doors.gate.admit_websocket(websocket(**headers), Role.READ) == ANYBODY


async def test_a_page_elsewhere_with_a_key_is_not_stopped_by_its_origin() -> None:
    doors = Doors()
    text = (await doors.key()).text
    assert (await doors.submit(text, origin="https://app.example.com", host="queue.example.com")).status == 201


# WebSockets


async def test_a_websocket_needs_what_a_request_needs() -> None:
    doors = Doors()
    reader, worker = (await doors.key(Role.READ)).text, (await doors.key(Role.WORK)).text
    assert (await doors.gate.admit_websocket(websocket(authorization=f"Bearer {reader}"), Role.READ)).may(Role.READ)
    with pytest.raises(Refusal) as refused:
        await doors.gate.admit_websocket(websocket(authorization=f"Bearer {worker}"), Role.READ)
    assert refused.value.status == 403
    with pytest.raises(Refusal) as refused:
        await doors.gate.admit_websocket(websocket(), Role.READ)
    assert refused.value.status == 401


# What every answer carries, and what none does


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/tasks"), ("GET", "/docs"), ("GET", "/nowhere")])
async def test_every_answer_has_the_security_headers(method: str, path: str) -> None:
    doors = Doors()
    said = await doors.call(method, path)
    assert said.headers["x-content-type-options"] == "nosniff"
    assert said.headers["referrer-policy"] == "no-referrer"
    policy = said.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "cache-control" in said.headers
    assert "strict-transport-security" not in said.headers
    over_tls = await doors.call(method, path, scheme="https")
    assert over_tls.headers["strict-transport-security"].startswith("max-age=")


async def test_no_header_is_said_twice() -> None:
    doors = Doors()
    for path in ("/docs", "/openapi.json", "/docs.css", "/api/v1/session"):
        names = (await doors.call("GET", path)).names
        assert len(set(names)) == len(names), path


async def test_an_api_answer_is_never_kept_by_a_cache() -> None:
    assert (await Doors().call("GET", "/api/v1/session")).headers["cache-control"] == "no-store"


async def test_no_secret_is_logged_or_answered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    doors = Doors()
    text = (await doors.key(Role.READ)).text
    secret = text.rpartition("_")[2]
    answers = [
        await doors.submit(text),
        await doors.submit(f"{text}x"),
        await doors.log_in(f"{text}x"),
        await doors.call("POST", "/api/v1/session", json={"key": [text]}),
        await doors.call("POST", "/api/v1/session", json={"kye": text}),
        await doors.call("GET", f"/api/v1/{text}"[:9], key=text),
    ]
    doors.store.broken = RuntimeError("a fault")
    doors.grow_stale()
    answers.append(await doors.submit(text))
    assert answers[-1].status == 500
    assert [answer for answer in answers if secret.encode() in answer.body] == []
    assert caplog.records and secret not in caplog.text
