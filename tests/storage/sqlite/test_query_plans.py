"""Every statement finds its rows by the index that was made for it: no cost grows with the number of tasks."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlead.core.task import State
from fairlead.storage.sqlite.database import connect, statement
from fairlead.storage.sqlite.read import _listings
from tests.storage.sections import names

_SORTED = "temporary b-tree"
_ARRIVED = ("all of filed", "task by its primary key")
# Lanes are few, and looked at only when there is something to pass over.
_OLDER = ("all of lane",)
_DIRECTED = ("directory by its primary key", "task by its primary key", "status by its primary key")

PLANS: dict[str, set[str]] = {
    "limits.due_forget": {"due by due_due"},
    "limits.due_of": {"due by its primary key"},
    "limits.due_set": set(),
    "limits.front_add": {"line by its primary key"},
    "limits.front_head": {"front by its primary key"},
    "limits.front_remove": {"front by its primary key"},
    "limits.lanes_keyed": {"lane by lane_keyed"},
    "limits.line_add": set(),
    "limits.line_remove": {"line by its primary key"},
    "limits.look_done": {"look by its primary key"},
    # Sorted only to name no key twice, of which there are no more than a claim looks at.
    "limits.look_due": {"look by look_at", _SORTED, "look by look_under"},
    "limits.look_forget": {"line by its primary key", "look by its primary key", "lane by lane_keyed"},
    "limits.look_free": {"look by its primary key"},
    "limits.look_later": set(),
    # Reads one row, if there is one.
    "limits.looking": {"all of CONSTANT", "all of look_at", "all of line_turn"},
    "limits.looking_next": {"look by look_at"},
    "limits.look_wake": set(),
    "limits.running_less": {"running by its primary key"},
    "limits.running_more": set(),
    "limits.running_none": {"running by its primary key"},
    "limits.running_of": {"running by its primary key"},
    "limits.running_of_type": {"lane by sqlite_autoindex_lane_1"},
    # Once for each queue that has a bound or a limit; then it is kept.
    "limits.total_move": {"total by its primary key", "lane by its primary key"},
    "limits.totals": {"all of CONSTANT", "all of total"},
    "limits.total_count": {"lane by sqlite_autoindex_lane_1"},
    "limits.total_keep": set(),
    "limits.total_of": {"total by its primary key"},
    "add.dependents": set(),
    # Reads one row, if there is one.
    "change.dependents_any": {"all of CONSTANT", "all of dependent"},
    "change.dependents_of": {"dependent by its primary key"},
    "change.dependents_remove": {"dependent by its primary key"},
    "feed.add": set(),
    "feed.end": {"feed_end by its primary key"},
    "feed.move": set(),
    "feed.read": {"feed by its primary key"},
    # Walks over as many entries as are kept, once for every tenth part of them published.
    "feed.trim": {"feed by its primary key", "all of feed"},
    # Tasks that are not filed lie at the end of their table, and are few.
    "arrivals.by_id": {"the ids asked for", *_ARRIVED},
    "arrivals.tally": {_SORTED, *_ARRIVED},
    "arrivals.directory_fill": {"task by its primary key"},
    "add.last_id": {"directory by its primary key"},
    "change.directory_remove": {"directory by its primary key"},
    "arrivals.filed": {"all of CONSTANT", "task by its primary key", "all of filed"},
    "arrivals.filed_set": {"all of filed"},
    "add.ids_known": {"the ids asked for", "directory by its primary key"},
    "change.key_free": {"key by its primary key"},
    "read.key_holder": {"key by its primary key"},
    "add.key_take": set(),
    "lanes.add": set(),
    "lanes.count": {"lane by its primary key"},
    "lanes.count_rest": {"lane by its primary key"},
    "lanes.count_with_head": {"lane by its primary key"},
    "lanes.few": {"lane by lane_heads"},
    # No more than its limit.
    "lanes.few_everywhere": {"all of lane"},
    "lanes.head_lower": {"lane by its primary key"},
    "lanes.head_set": {"lane by its primary key"},
    "lanes.kind_next": {"lane by lane_heads"},
    "lanes.kind_next_everywhere": {"lane by lane_heads_everywhere"},
    "lanes.of_types": {"the ids asked for", "lane by sqlite_autoindex_lane_1"},
    # When there are too many kinds of lanes, which is seldom.
    "lanes.shut_reset": {"all of lane"},
    "lanes.shut_set": {"lane by its primary key"},
    "lanes.walk": {"lane by lane_heads"},
    "lanes.walk_queues": {"lane by lane_heads_everywhere"},
    "arrivals.lane_fill": {"lane by its primary key"},
    "arrivals.lanes": {"task by its primary key", _SORTED, "all of arrived", "lane by its primary key"},
    "lanes.forget": {"lane by its primary key"},
    "claim.bodies": {"the ids asked for", "task by its primary key", "status by its primary key"},
    "claim.places": {"ready by its primary key"},
    "claim.heads": {"ready by its primary key", "status by its primary key", "task by its primary key"},
    "lanes.named": {"lane by its primary key"},
    "lanes.number": {"lane by sqlite_autoindex_lane_1"},
    "read.stretch": {"ready by its primary key", "lane by sqlite_autoindex_lane_1", *_ARRIVED},
    # One row per lane, and lanes are few: this is the O(lanes) of clause F4.
    "read.tally": {"all of lane", "ready by its primary key"},
    "read.leases_due": {"status by status_lease", "task by its primary key", *_OLDER},
    "change.leases_late": {"status by status_lease", *_OLDER},
    "read.next_alarm": {"status by status_lease", "status by status_alarm"},
    "change.ready_add": set(),
    "arrivals.ready_fill": {"task by its primary key"},
    "change.ready_remove": {"ready by its primary key"},
    "claim.ready_take": {"ready by its primary key"},
    "records.drop": {"record by its primary key"},
    "records.put": set(),
    "records.version": {"record by its primary key"},
    "records.all": {"record by its primary key"},
    "read.packed_by_number": {"task by its primary key", "status by its primary key"},
    # For one task that cannot be decoded, and so cannot say where in these it is.
    "change.dependents_forget": {"all of dependent"},
    "change.key_forget": {"all of key"},
    "limits.line_place": {"line by its primary key"},
    "read.location_of": {
        "all of filed",
        "directory by its primary key",
        "lane by its primary key",
        "status by its primary key",
        "task by its primary key",
    },
    "change.ready_forget": {"ready by its primary key"},
    "change.task_stored": {"directory by its primary key", "task by its primary key", "status by its primary key"},
    "change.status_remove": {"status by its primary key"},
    # Each row goes to its number, as an insert that may find it taken.
    "change.status_set": set(),
    "read.statuses_by_id": {"the ids asked for", *_DIRECTED},
    "add.tasks": set(),
    "arrivals.add": {"lane by sqlite_autoindex_lane_1", "directory by its primary key", *_ARRIVED},
    "change.task_remove": {"task by its primary key"},
    "read.tasks_by_id": {"the ids asked for", *_DIRECTED},
    "turns.lines": {"line_turn by its primary key"},
    # The lines in which fair tasks wait, for a claim of many queues.
    "turns.queues": {"all of line_turn"},
    "turns.line": {"line_turn by its primary key"},
    "turns.line_set": set(),
    "turns.line_forget": {"line_turn by its primary key"},
    "turns.key": {"line_key by its primary key"},
    "turns.key_set": set(),
    "turns.key_forget": {"line_key by its primary key"},
    "turns.keys_forget": {"line_key by its primary key"},
    "turns.keys_count": {"line_key by its primary key"},
    "turns.keys_named": {"the ids asked for", "line_key by its primary key"},
    # A thousand at most.
    "turns.keys_most": {"line_key by its primary key", _SORTED},
    "turns.keys_some": {"line_key by its primary key"},
    "turns.lanes": {"lane by lane_fair"},
    "turns.add": set(),
    "turns.of": {"turn by its primary key"},
    "turns.remove": {"turn by its primary key"},
    "turns.take": {"turn by its primary key"},
    # For one task that cannot be decoded.
    "turns.find": {"turn by its primary key"},
    "turns.places": {"turn by its primary key", "ready by its primary key"},
    "turns.stretch": {"turn by its primary key", "lane by sqlite_autoindex_lane_1"},
    # After a process of an earlier version has changed who waits.
    "turns.mend_begin": {"line_key by its primary key"},
    "turns.mend_bound": {"lane by sqlite_autoindex_lane_1"},
    "turns.mend_come": {
        "ready by its primary key",
        "status by its primary key",
        "task by its primary key",
        "turn by its primary key",
    },
    "turns.mend_empty": {"line_turn by its primary key", "line_key by its primary key"},
    "turns.mend_gone": {"turn by its primary key", "ready by its primary key"},
    "turns.mend_keys": {"lane by lane_fair", "turn by its primary key", _SORTED},
    "turns.mend_lines": {"line_key by its primary key", "all of counted", "line_turn by its primary key"},
    "turns.strays": {"all of lane"},
    "read.tasks_due": {"status by status_alarm", "task by its primary key", *_OLDER},
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
    # A sample of orphans is read in whatever order it lies, up to its limit.
    assert {*names("sqlite")} == {*PLANS, "read.tasks_newest", "read.tasks_oldest", "health.orphans"}


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
    named, numbered = re.findall(r":([a-z]+)", bare), set(re.findall(r"\?\d+", bare))
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
