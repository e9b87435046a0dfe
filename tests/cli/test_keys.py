"""`fairlead keys`: made, listed and revoked by people and by scripts."""

from __future__ import annotations

from fairlead.admin.keys.service import Keyring, split
from fairlead.core.tenancy import Role
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder


def test_a_key_is_shown_once_and_never_again(folder: Folder) -> None:
    made = folder.ok("keys", "create", "ci", "--roles", "submit,read")
    key, said = made.out.splitlines()
    assert key.startswith("fl_") and "'ci' (submit, read)" in said
    parts = split(key)
    assert parts is not None
    for shown in (folder.quick("keys", "list").out, folder.quick("keys", "list", "--json").out):
        assert parts[0] in shown and parts[1] not in shown
    (stored,) = run_inline(Keyring(folder.engine()).keys())
    assert stored.opens(parts[1]) and stored.roles == (Role.SUBMIT, Role.READ)


def test_scripts_get_all_there_is_to_know(folder: Folder) -> None:
    made = folder.quick(
        "keys",
        "create",
        "web",
        "--roles",
        "admin",
        "--tenant",
        "acme",
        "--expires-at",
        "+30d",
        "--rate-limit",
        "5",
        "--json",
    ).json
    key = made.pop("key")
    assert key.startswith(f"fl_{made['id']}_")
    assert (made["name"], made["roles"], made["tenant"], made["rate"]) == ("web", ["admin"], "acme", 5.0)
    assert made["expires_at"] > made["created_at"]
    assert folder.quick("keys", "list", "--json").lines == [made]
    assert folder.quick("keys", "revoke", "web", "--json").json == made
    assert folder.quick("keys", "list", "--json").lines == []


def test_the_table_says_when_keys_end_and_what_they_may(folder: Folder) -> None:
    folder.quick("keys", "create", "web", "--roles", "submit", "--rate-limit", "0")
    folder.quick("keys", "create", "guest", "--roles", "read", "--expires-at", "+9h")
    header, web, guest = folder.quick("keys", "list").out.splitlines()
    assert header.split() == ["ID", "NAME", "ROLES", "TENANT", "RATE", "CREATED", "EXPIRES"]
    assert "no limit" in web and web.endswith("never")
    assert "default" in guest and "in 9h" in guest


def test_no_keys_is_said_and_what_that_means(folder: Folder) -> None:
    folder.submit("echo")
    assert folder.quick("keys", "list").out.startswith("no keys: servers answer only their own machine")


def test_what_cannot_be_is_one_clear_line(folder: Folder) -> None:
    create = ("keys", "create", "x", "--roles")
    for arguments, code, said in (
        ((*create, "root"), 2, "role 'root' is unknown; use submit, read, work, admin"),
        ((*create, ""), 2, "at least one of submit, read, work, admin"),
        ((*create, "read", "--expires-at", "-1h"), 2, "has an expiry in the past"),
        ((*create, "read", "--expires-at", "soon"), 2, "is not a moment"),
        ((*create, "read", "--rate-limit", "-1"), 2, "requests a second"),
        (("keys", "create", "two words", "--roles", "read"), 2, "is not a valid name"),
        (("keys", "create", "x"), 2, "--roles"),
    ):
        ended = folder.quick(*arguments)
        assert (ended.code, ended.out) == (code, ""), ended
        assert said in ended.error
    folder.submit("echo")
    ended = folder.quick("keys", "revoke", "nobody")
    assert ended.code == 1 and "key 'nobody' not found" in ended.error
