"""Every statement finds its rows by the index that was made for it: no cost grows with the number of tasks."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from fairlead.core.task import State
from fairlead.storage.sqlite.database import connect
from fairlead.storage.sqlite.reading import _listings
from fairlead.storage.sqlite.statements import statement

_SORTED = "temporary b-tree"
_ARRIVED = ("all of filed", "task by its primary key")
_DIRECTED = ("directory by its primary key", "task by its primary key", "status by its primary key")

PLANS: dict[str, set[str]] = {
    "due_forget": {"due by due_due"},
    "due_of": {"due by its primary key"},
    "due_set": set(),
    "front_add": {"line by its primary key"},
    "front_head": {"status by its primary key", "front by its primary key", "task by its primary key"},
    "front_remove": {"front by its primary key"},
    "lanes_keyed": {"lane by sqlite_autoindex_lane_1"},
    "lanes_running": {"the queues asked for", "lane by sqlite_autoindex_lane_1"},
    "line_add": set(),
    "line_remove": {"line by its primary key"},
    "look_done": {"look by its primary key"},
    # Sorted only to name no key twice, of which there are no more than a claim looks at.
    "look_due": {"look by look_at", _SORTED, "look by look_under"},
    "look_forget": {"line by its primary key", "look by its primary key", "lane by sqlite_autoindex_lane_1"},
    "look_free": {"look by its primary key"},
    "look_later": set(),
    "look_wake": set(),
    "running_less": {"running by its primary key"},
    "running_more": set(),
    "running_none": {"running by its primary key"},
    "running_of": {"running by its primary key"},
    "dependents_add": set(),
    # Reads one row, if there is one.
    "dependents_any": {"all of CONSTANT", "all of dependent"},
    "dependents_of": {"dependent by its primary key"},
    "dependents_remove": {"dependent by its primary key"},
    "feed_add": set(),
    "feed_end": {"feed_end by its primary key"},
    "feed_move": set(),
    "feed_read": {"feed by its primary key"},
    # Walks over as many entries as are kept, once for every tenth part of them published.
    "feed_trim": {"feed by its primary key", "all of feed"},
    # Tasks that are not filed lie at the end of their table, and are few.
    "arrivals_by_id": {"the ids asked for", *_ARRIVED},
    "arrivals_tally": {_SORTED, *_ARRIVED},
    "directory_fill": {"task by its primary key"},
    "directory_last": {"directory by its primary key"},
    "directory_remove": {"directory by its primary key"},
    "filed": {"all of CONSTANT", "task by its primary key", "all of filed"},
    "filed_set": {"all of filed"},
    "ids_known": {"the ids asked for", "directory by its primary key"},
    "key_free": {"key by its primary key"},
    "key_holder": {"key by its primary key"},
    "key_take": set(),
    "lane_add": set(),
    "lane_count": {"lane by its primary key"},
    "lane_fill": {"lane by its primary key", "task by its primary key"},
    "lane_forget": {"lane by its primary key"},
    "lane_heads": {"ready by its primary key", "status by its primary key", "task by its primary key"},
    "lane_named": {"lane by its primary key"},
    "lane_number": {"lane by sqlite_autoindex_lane_1"},
    "lane_stretch": {"ready by its primary key", "lane by sqlite_autoindex_lane_1", *_ARRIVED},
    "lanes_ready": {"the queues asked for", "lane by sqlite_autoindex_lane_1"},
    # One row per lane, and lanes are few: this is the O(lanes) of clause F4.
    "lanes_tally": {"all of lane", "ready by its primary key"},
    "leases_due": {"status by status_lease", "task by its primary key"},
    "next_alarm": {"status by status_lease", "status by status_alarm"},
    "queue_depth": {"lane by sqlite_autoindex_lane_1"},
    "ready_add": set(),
    "ready_fill": {"task by its primary key"},
    "ready_remove": {"ready by its primary key"},
    "ready_take": {"ready by its primary key"},
    "record_drop": {"record by its primary key"},
    "record_put": set(),
    "record_version": {"record by its primary key"},
    "records": {"record by its primary key"},
    "spec_by_number": {"task by its primary key"},
    "status_remove": {"status by its primary key"},
    # Each row goes to its number, as an insert that may find it taken.
    "status_set": set(),
    "statuses_by_id": {"the ids asked for", *_DIRECTED},
    "task_add": set(),
    "task_arrive": {"lane by sqlite_autoindex_lane_1", "directory by its primary key", *_ARRIVED},
    "task_remove": {"task by its primary key"},
    "tasks_by_id": {"the ids asked for", *_DIRECTED},
    "tasks_due": {"status by status_alarm", "task by its primary key"},
}

_LISTED = {"all of lane", "task by its primary key"}
_WALKED = {"all of lane", "directory by its primary key", "task by its primary key", "status by its primary key"}
_LISTED_ARRIVALS = {"all of lane", _SORTED, "status by its primary key", *_ARRIVED}
LISTINGS: dict[State | None, set[str]] = {
    None: _WALKED,
    **dict.fromkeys(State, _LISTED | {"status by status_state"}),
    State.QUEUED: _WALKED,
    # As many as are held by workers, and therefore few: sorted rather than kept in a further index.
    State.EXECUTING: _LISTED | {"all of status_lease", _SORTED},
}


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(path, synchronous="FULL")) as connection:
        yield connection


def test_every_statement_has_a_plan_here() -> None:
    files = (resources.files("fairlead.storage.sqlite") / "sql").iterdir()
    # A sample of orphans is read in whatever order it lies, up to its limit.
    assert {Path(file.name).stem for file in files} == {*PLANS, "tasks_newest", "tasks_oldest", "orphans"}


@pytest.mark.parametrize("name", PLANS)
def test_a_statement_uses_its_index(connection: sqlite3.Connection, name: str) -> None:
    assert plan(connection, in_two_rows(statement(name))) == PLANS[name]


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("state", LISTINGS)
def test_a_listing_streams_from_its_index(
    connection: sqlite3.Connection, state: State | None, newest_first: bool
) -> None:
    query, *arrivals = _listings(frozenset() if state is None else frozenset({state}), newest_first)
    assert plan(connection, query) == LISTINGS[state]
    assert all(plan(connection, each) == _LISTED_ARRIVALS for each in arrivals)


def in_two_rows(query: str) -> str:
    """A statement that takes rows, for two of them."""
    columns = re.search(r"\((.*)\) VALUES", query)
    row = "" if columns is None else re.sub(r"\w+", "?", columns[1])
    return query.replace("{rows}", f"({row}), ({row})")


def plan(connection: sqlite3.Connection, query: str) -> set[str]:
    """What a query reads and how, in words that do not change with SQLite's version."""
    bare = re.sub("--.*", "", query)
    named, numbered = re.findall(r":([a-z]+)", bare), set(re.findall(r"\?\d", bare))
    nothing: dict[str, None] | list[None] = dict.fromkeys(named) or [None] * (len(numbered) or bare.count("?"))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {query}", nothing)
    return {step for *_, detail in rows if (step := _in_words(detail)) is not None}


def _in_words(detail: str) -> str | None:
    if "TEMP B-TREE" in detail:
        return _SORTED
    found = re.match(
        r"(SCAN|SEARCH) (?:TABLE )?(\S+)(?:.*? USING (?:COVERING )?(?:INDEX (\w+)|(.*PRIMARY KEY)))?", detail
    )
    if found is None or found[2].startswith("(") or "CONSTANT ROWS" in detail:
        return None
    verb, table, index, primary = found.groups()
    if "VIRTUAL TABLE" in detail:
        return "the ids asked for" if table == "asked" else "the queues asked for"
    if verb == "SCAN":
        return f"all of {index if index and table != 'lane' else table}"
    return f"{table} by its primary key" if primary or index is None else f"{table} by {index}"
