"""What URLs of PostgreSQL say: to libpq as they were written, to us what is ours, and to nobody a password."""

from __future__ import annotations

import pytest
from psycopg import pq

from fairlead.core.errors import InvalidSettings
from fairlead.storage.journal.url import parse_journal
from fairlead.storage.login import Command
from fairlead.storage.open import check_journal, check_url
from fairlead.storage.postgres.url import parse

OURS = "schema=other&pool=3&prepare=off&listen=off&timeout=7"


def read(conninfo: str) -> dict[str, str]:
    """What libpq reads, without our defaults."""
    ours = {"connect_timeout", "keepalives_idle", "fallback_application_name"}
    options = pq.Conninfo.parse(conninfo.encode())
    found = {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}
    return {key: value for key, value in found.items() if key not in ours}


URLS = [
    "postgresql://",
    "postgres://",
    "postgresql:///app",
    "postgresql://me@",
    "postgresql://me:secret@db.example.org:6000/app",
    "postgresql:///app?host=/run/postgresql",
    "postgresql://%2Frun%2Fpostgresql:6000/app",
    "postgresql://me@/app?host=/run/postgresql&port=6000",
    "postgresql://?service=orders",
    "postgresql:///?service=orders&connect_timeout=9",
    "postgresql://one:1,two,[::1]:3/app?target_session_attrs=read-write&load_balance_hosts=random",
    "postgresql://[2001:db8::1]:5433/app",
    "postgresql://m%C3%A9:s%40cr%2Ft@h/%C3%A4pp",
    "postgresql://me:se?cret@h/app",
    "postgresql:///app?user=me@example.org&password=a+b%26c&sslmode=verify-full&sslrootcert=/etc/ca.pem",
    "postgresql:///app?options=-c%20search_path%3Da",
]


@pytest.mark.parametrize("url", URLS)
def test_libpq_reads_what_was_written(url: str) -> None:
    check_url(url)
    mark = "&" if "?" in url.rpartition("@")[2] or "?host" in url or "?user" in url else "?"
    written = read(url)
    assert read(parse(url).conninfo) == written
    address = parse(f"{url}{mark}{OURS}")
    assert read(address.conninfo) == written
    said = (address.schema, address.pool, address.prepare, address.listen, address.timeout)
    assert said == ("other", 3, False, False, 7.0)


@pytest.mark.parametrize("url", URLS)
def test_a_journal_may_be_anywhere_that_a_store_may_be(url: str) -> None:
    check_journal("redis://h", url)
    mark = "&" if "?" in url.rpartition("@")[2] or "?host" in url or "?user" in url else "?"
    address = parse_journal(f"{url}{mark}hot_retention=5&required=off&pool=3")
    assert read(address.database.conninfo) == read(url)
    assert (address.hot_retention, address.required, address.database.pool) == (5_000_000, False, 3)
    assert address.database.schema == "fairlead_journal"
    assert parse_journal(f"{url}{mark}schema=mine").database.schema == "mine"


def test_what_libpq_finds_elsewhere_goes_before_our_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGCONNECT_TIMEOUT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    assert "connect_timeout=5" in parse("postgresql://h/app").conninfo
    assert "connect_timeout=2" in parse("postgresql://h/app?connect_timeout=2").conninfo
    assert "connect_timeout" not in parse("postgresql://h/app?service=orders").conninfo
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    assert "connect_timeout" not in parse("postgresql://h/app").conninfo


def test_a_pooler_is_looked_for_unless_it_is_said() -> None:
    assert parse("postgresql://").prepare is None
    assert parse("postgresql://?prepare=auto").prepare is None
    assert parse("postgresql://?prepare=on").prepare is True


def test_a_command_is_ours() -> None:
    address = parse("postgresql://me@h/app?credentials_command=give%20it&sslmode=require")
    assert isinstance(address.credentials, Command)
    assert read(address.conninfo) == {"user": "me", "host": "h", "dbname": "app", "sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:hunter2@h/app?sslmod=require", "sslmod"),
        ("postgresql://me:hun%zzter2@h/app", "invalid percent-encoded token"),
        ("postgresql://me:hunter2@h:port/app", "an invalid port"),
        ("postgresql://me:hunter2@h:65536/app", "an invalid port"),
        ("postgresql://me:hunter2", "an invalid port"),
        ("postgresql://me:p@hunter2@h/app", "two @"),
        ("postgresql://me:hunter2@[::1/app", "looking for matching"),
        ("postgresql://h/app?password=hunter2%00", "forbidden value %00"),
        ("postgresql://h/app?hunter2", "missing key/value separator"),
        ("postgresql://h/app?pool=2&pool=3", "twice"),
        ("postgresql:h", "does not begin with postgresql://"),
    ],
)
def test_what_libpq_cannot_read_is_refused_and_not_shown(url: str, says: str) -> None:
    for check in (check_url, lambda journal: check_journal("redis://h", journal)):
        with pytest.raises(InvalidSettings) as refused:
            check(url)
        assert "hun" not in str(refused.value)
    with pytest.raises(InvalidSettings, match=says):
        check_url(url)
