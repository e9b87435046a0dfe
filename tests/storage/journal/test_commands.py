"""`fairlead rebuild` and `fairlead migrate`, and an app with a journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.app.app import Fairlead
from fairlead.cli.program import FAILED, MISUSED, OK, run
from fairlead.core.errors import InvalidSettings
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def places(redis: RedisServer, prefix: str, url: str) -> list[str]:
    return ["--store", redis.url(prefix=prefix), "--journal", url]


def test_an_emptied_redis_is_rebuilt(redis: RedisServer, places: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "echo", "message=hello", "--priority", "high", *places]) == OK
    assert run(["submit", "echo", "message=later", "--delay", "3600", *places]) == OK
    capsys.readouterr()
    redis.ask("FLUSHALL")
    assert run(["rebuild", "--json", *places]) == OK
    assert json.loads(capsys.readouterr().out) == {"looked_at": 2, "put_back": 2}
    assert run(["rebuild", *places]) == OK
    assert capsys.readouterr().out == "0 tasks put back; 2 were not lost\n"
    assert run(["stats", "--json", *places]) == OK
    stats = json.loads(capsys.readouterr().out)
    assert stats["by_queue"]["default"]["priorities"]["high"]["depth"] == 1
    assert (stats["states"]["scheduled"], stats["journal_behind"]) == (1, 0)


def test_without_a_journal_there_is_nothing_to_rebuild_from(
    redis: RedisServer, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rebuild", "--store", redis.url(prefix=prefix)]) == MISUSED
    assert "--journal or FAIRLEAD_JOURNAL" in capsys.readouterr().err


def test_a_journal_is_for_redis(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "echo", "--store", f"sqlite:///{tmp_path}/tasks.db", "--journal", url]) == MISUSED
    assert "has no use for a journal" in capsys.readouterr().err
    with pytest.raises(InvalidSettings, match="has no use for a journal"):
        Fairlead("memory://", journal=url)


def test_a_journal_out_of_reach_is_named(redis: RedisServer, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    with pytest.warns(RuntimeWarning, match="the journal at"):
        code = run(["submit", "echo", "--store", redis.url(prefix=prefix), "--journal", nowhere])
    assert code == FAILED
    assert "the journal at postgresql://***@127.0.0.1:1/none" in capsys.readouterr().err


def test_a_journal_that_is_not_required_is_no_hindrance(
    redis: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_JOURNAL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("FAIRLEAD_JOURNAL_REQUIRED", "false")
    with pytest.warns(RuntimeWarning, match="the journal at"):
        assert run(["submit", "echo", "--store", redis.url(prefix=prefix)]) == OK
        capsys.readouterr()
        assert run(["stats", "--json", "--store", redis.url(prefix=prefix)]) == OK
    assert json.loads(capsys.readouterr().out)["journal_behind"] == 1


def test_migrate_sets_up_store_and_journal(server: PostgresServer, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.url(server.create_database())
    assert run(["migrate", "--store", "redis://nowhere", "--journal", url]) == OK
    assert "applied 0001_journal" in capsys.readouterr().out
    assert run(["migrate", "--store", "redis://nowhere", "--journal", url]) == OK
    assert "up to date" in capsys.readouterr().out
    assert run(["migrate", url]) == OK
    assert "applied 0001_initial" in capsys.readouterr().out
    assert run(["migrate"]) == MISUSED


async def test_an_app_submits_through_its_journal(redis: RedisServer, prefix: str, url: str) -> None:
    app = Fairlead(redis.url(prefix=prefix), journal=url)

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    handle = await greet.submit("you")
    engine = await app.connection().engine()
    redis.ask("FLUSHALL")
    assert (await engine.get(handle.id)).spec.type == "greet"
    await app.close()
