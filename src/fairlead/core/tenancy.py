"""Whose a task is, as far as the caller says who asks: what a key that is bound to a tenant may name."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from fairlead.core.errors import Forbidden

if TYPE_CHECKING:
    from fairlead.core.task import Task


class Role(enum.StrEnum):
    """What a key may do. `admin` may do everything."""

    SUBMIT = "submit"
    READ = "read"
    WORK = "work"
    ADMIN = "admin"


UNBOUND: Final = "use a key that is bound to none"
"""The remedy for whoever is bound to a tenant and wants what concerns all of them."""

_SHOWN: Final = 64


def check_unbound(tenant: str | None) -> None:
    """Refuse a caller who is bound to a tenant: what it wants concerns the tasks of all tenants."""
    if tenant is not None:
        raise Forbidden("this concerns all tenants, and the key is bound to one", UNBOUND)


def tenant_named(tenant: str | None, named: str | None) -> str | None:
    """The tenant of a task that a caller submits: the one it names, else its own; refused if that is another's."""
    if tenant is None or named == tenant:
        return named
    if named is None:
        return tenant
    shown = named[:_SHOWN]
    remedy = "leave it out, or use a key of that tenant"
    raise Forbidden(f"tenant {shown!r} is not the one that this key is for", remedy, "tenant", shown)


def check_holder(tenant: str | None, task: Task) -> Task:
    """The task that holds the idempotency key of a submit, which must be there for the caller."""
    if tenant in (None, task.spec.tenant):
        return task
    raise Forbidden(
        "the idempotency_key is taken in this queue by another tenant",
        "choose another key, or a queue of your own",
        "idempotency_key",
    )
