"""`keys`: who may call a server."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from fairlead.admin.keys.service import ApiKey, Keyring, parse_roles
from fairlead.cli.options import COMMON_WITH_STORE, PLAIN, CommonWithStore, connected, words
from fairlead.cli.output import Cell, Column, write, write_json, write_styled, write_table
from fairlead.cli.times import ago, parse
from fairlead.core.instant import Instant
from fairlead.engine.runtime.inline import run_inline
from fairlead.wire.text import maybe_iso

keys = App(
    name="keys",
    default_parameter=PLAIN,
    group_commands="Keys",
    help="""Create, list and revoke the API keys of a store.

    A new key works at once; a revoked key stops working within five seconds.
    From the first key on, every call to a server needs one.""",
)


def create(
    name: Annotated[str, Parameter(name="NAME", help="What it is for, such as `web` or `ci`.")],
    /,
    *,
    roles: Annotated[
        str,
        Parameter(
            help="What it may do: `submit` tasks, `read` tasks and figures, `work` on tasks, or `admin` for all.",
            metavar="A,B",
        ),
    ],
    tenant: Annotated[
        str | None,
        Parameter(
            help="The tenant that it is bound to: it sees only that tenant's tasks. By default it is bound to none.",
            metavar="NAME",
        ),
    ] = None,
    expires_at: Annotated[
        str | None,
        Parameter(
            help="When it expires: +90d, or 2027-01-01T00:00Z; never by default.",
            metavar="MOMENT",
            allow_leading_hyphen=True,
        ),
    ] = None,
    rate_limit: Annotated[
        float | None,
        Parameter(
            help="Requests a second from one key, 0 for no limit; the server's `rate_limit` by default.",
            metavar="N",
        ),
    ] = None,
    common: CommonWithStore = COMMON_WITH_STORE,
) -> None:
    """Create a key and show it once: the store keeps only its hash."""
    wanted = parse_roles(words(roles))
    with connected(common, create=True) as connection:
        engine = connection.inline()
        until = None if expires_at is None else parse("--expires-at", expires_at, engine.clock.now())
        made = run_inline(Keyring(engine).create(name, wanted, tenant=tenant, expires=until, rate=rate_limit))
    if common.json:
        write_json({**_shape(made.key), "key": made.text})
        return
    write_styled([Cell(made.text, "bold")])
    write(f"This is the key {made.key.name!r} ({', '.join(made.key.roles)}). It is shown this once; keep it safe.")


def list_keys(*, common: CommonWithStore = COMMON_WITH_STORE) -> None:
    """List the keys, the oldest first, without their secrets: the store does not know them."""
    with connected(common) as connection:
        engine = connection.inline()
        found, unread = run_inline(Keyring(engine).read())
        now = engine.clock.now()
    if common.json:
        for key in found:
            write_json(_shape(key))
        return
    for unreadable in unread:
        remedy = f"`fairlead quarantine show key/{unreadable}` says what to do"
        warning = f"{unreadable} cannot be read: nobody can log in with it, and it still counts as a key; {remedy}"
        write_styled([Cell(warning, "red")])
    if unread and not found:
        return
    if not found:
        write("no keys: servers answer only their own machine, and allow it everything")
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
