"""`keys`: who may call a server."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from fairlead.cli.moments import ago, parse
from fairlead.cli.options import COMMON_WITH_STORE, CommonWithStore, connected, words
from fairlead.cli.output import Cell, Column, write, write_json, write_styled, write_table
from fairlead.core.instant import Instant
from fairlead.engine.inline import run_inline
from fairlead.engine.keys import ApiKey, Keyring, parse_roles
from fairlead.wire.moments import maybe_iso

keys = App(
    name="keys",
    group_commands="Keys",
    help="""Make, list and revoke the API keys of a store.

    Servers look them up every few seconds: a new key works at once, a revoked one stops working within five seconds.
    From the first key on, every call to a server needs one.""",
)


def create(
    name: Annotated[str, Parameter(name="NAME", help="What it is for, such as `web` or `ci`.")],
    /,
    *,
    roles: Annotated[
        str,
        Parameter(
            help="What it may do: `submit` tasks, `read` how things stand, `work` on tasks, or `admin` for everything.",
            metavar="A,B",
        ),
    ],
    tenant: Annotated[
        str | None, Parameter(help="The only tenant that its holder may name; any if not said.", metavar="NAME")
    ] = None,
    expires: Annotated[
        str | None,
        Parameter(
            help="When it ends: +90d, or 2027-01-01T00:00Z; never if not said.",
            metavar="MOMENT",
            allow_leading_hyphen=True,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        Parameter(
            help="Requests a second that each server takes from it, 0 for no limit; the server's `rate_limit` if not "
            "said.",
            metavar="N",
        ),
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Make a key and show it, this once: the store keeps a hash of it only."""
    wanted = parse_roles(words(roles))
    with connected(common, create=True) as connection:
        engine = connection.inline()
        until = None if expires is None else parse("--expires", expires, engine.clock.now())
        made = run_inline(Keyring(engine).create(name, wanted, tenant=tenant, expires=until, rate=rate))
    if common.json:
        write_json({**_shape(made.key), "key": made.text})
        return
    write_styled([Cell(made.text, "bold")])
    write(f"This is the key {made.key.name!r} ({', '.join(made.key.roles)}). It is shown this once; keep it safe.")


def list_keys(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the keys, the oldest first. What they are is not shown: nobody knows it but their holders."""
    with connected(common) as connection:
        engine = connection.inline()
        found = run_inline(Keyring(engine).keys())
        now = engine.clock.now()
    if common.json:
        for key in found:
            write_json(_shape(key))
        return
    if not found:
        write("no keys: servers let anybody on their own machine do everything, and nobody else")
        return
    write_table(
        [Column("ID"), Column("NAME", cut=True), Column("ROLES"), Column("TENANT", cut=True, optional=True),
         Column("RATE", right=True, optional=True), Column("CREATED"), Column("EXPIRES")],
        [
            [key.id, Cell(key.name, "bold"), ",".join(key.roles), key.tenant or "any", _rate(key),
             ago(key.created_at, now), _end(key, now)]
            for key in found
        ],
    )  # fmt: skip


def revoke(
    key: Annotated[str, Parameter(name="KEY", help="Its id, or its name if no other has it.")],
    /,
    *,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Revoke a key: it stops working within five seconds, and its sessions end."""
    with connected(common) as connection:
        revoked = run_inline(Keyring(connection.inline()).revoke(key))
    if common.json:
        write_json(_shape(revoked))
    else:
        write(f"the key {revoked.name!r} ({revoked.id}) is revoked")


def _shape(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "roles": list(key.roles),
        "tenant": key.tenant,
        "rate": key.rate,
        "created_at": maybe_iso(key.created_at),
        "expires_at": maybe_iso(key.expires_at),
    }


def _rate(key: ApiKey) -> str:
    if key.rate is None:
        return "default"
    return f"{key.rate:g}/s" if key.rate else "no limit"


def _end(key: ApiKey, now: Instant) -> Cell:
    if key.expires_at is None:
        return Cell("never")
    return Cell(ago(key.expires_at, now), "red" if key.expired(now) else "")


for _name, _command in (("create", create), ("list", list_keys), ("revoke", revoke)):
    # By its place, as the program has its own commands: only so does it know its name in the reference.
    keys.command(f"{__name__}:{_command.__name__}", name=_name)
    # Its first line of help is known only when it is loaded.
    keys[_name]
