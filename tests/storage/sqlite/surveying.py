"""Looking at a store's file from outside, with nothing but SQL."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from fairlead.core.task import State

_STANDING = """
    SELECT task.number, task.id, coalesce(status.lane, task.lane) AS lane, coalesce(status.state, 'queued') AS state
    FROM task LEFT JOIN status ON status.number = task.number
"""
"""Every task: one without a status stands as it was added, which is queued."""

_ARRIVED = "SELECT number, id, lane FROM task WHERE number > (SELECT number FROM filed)"
"""The tasks that are not filed."""

_HIDDEN = """
    SELECT count(*) FROM ready JOIN lane USING (lane)
    WHERE keyed = 0 AND instr(requires, 'fair turns') = 0
        AND (head_ready_at IS NULL OR (head_ready_at, head_id) > (ready_at, id))
"""
"""The tasks that a claim by the heads of lanes would overlook."""

_HIDDEN_KEYS = """
    SELECT count(*) FROM front JOIN lane USING (lane)
    WHERE head_ready_at IS NULL OR (head_ready_at, head_id) > (ready_at, id)
"""

_FAIR = """
    SELECT ready.lane, ready.ready_at, ready.id, ready.number
    FROM ready JOIN lane USING (lane) WHERE instr(requires, 'fair turns') > 0
"""
_TURNS = "SELECT lane, ready_at, id, number FROM turn"
_UNTURNED = f"SELECT count(*) FROM ({_FAIR} EXCEPT {_TURNS})"
_STALE_TURNS = f"SELECT count(*) FROM ({_TURNS} EXCEPT {_FAIR})"
"""Fair tasks that wait without a turn, and turns of tasks that do not wait."""

_KEYS = """
    SELECT queue, priority, turn.key, count(*) AS waiting, max(turn.turn) AS most
    FROM turn JOIN lane USING (lane) GROUP BY queue, priority, turn.key
"""
_MISCOUNTED_KEYS = f"""
    SELECT count(*) FROM (
        SELECT queue, priority, key, waiting FROM ({_KEYS}) EXCEPT SELECT queue, priority, key, waiting FROM line_key
        UNION ALL
        SELECT queue, priority, key, waiting FROM line_key EXCEPT SELECT queue, priority, key, waiting FROM ({_KEYS})
    )
"""
_MISCOUNTED_LINES = f"""
    SELECT count(*) FROM (
        SELECT queue, priority, sum(waiting) FROM ({_KEYS}) GROUP BY queue, priority
        EXCEPT SELECT queue, priority, waiting FROM line_turn
        UNION ALL
        SELECT queue, priority, waiting FROM line_turn
        EXCEPT SELECT queue, priority, sum(waiting) FROM ({_KEYS}) GROUP BY queue, priority
    )
"""
_BEHIND = f"SELECT count(*) FROM ({_KEYS}) JOIN line_key USING (queue, priority, key) WHERE last < most"

_MISCOUNTED = """
    SELECT count(*) FROM total
    WHERE (waiting, executing) <> (
        SELECT coalesce(sum(scheduled + queued), 0), coalesce(sum(executing), 0)
        FROM lane
        WHERE lane.queue = total.queue
    )
"""


def survey(path: Path) -> Counter[str]:
    """Hold the file to what must always be true of it; how many tasks are in each state."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert _lane_counts(connection) == _real_counts(connection)
        assert _ready(connection) == _queued(connection)
        assert _directory(connection) == _filed(connection)
        for rest in (
            _HIDDEN,
            _HIDDEN_KEYS,
            _MISCOUNTED,
            _UNTURNED,
            _STALE_TURNS,
            _MISCOUNTED_KEYS,
            _MISCOUNTED_LINES,
            _BEHIND,
            f"SELECT count(*) FROM status WHERE number IN (SELECT number FROM ({_ARRIVED}))",
            "SELECT count(*) FROM key WHERE id NOT IN (SELECT id FROM task)",
            "SELECT count(*) FROM status WHERE (number, id) NOT IN (SELECT number, id FROM task)",
        ):
            assert connection.execute(rest).fetchone() == (0,), rest
        return Counter(dict(connection.execute(f"SELECT state, count(*) FROM ({_STANDING}) GROUP BY state")))


def completed(connection: sqlite3.Connection) -> int:
    """How many tasks the lanes say are completed."""
    (tasks,) = connection.execute("SELECT coalesce(sum(completed), 0) FROM lane").fetchone()
    return int(tasks)


def log_size(path: Path) -> int:
    """The bytes of the write-ahead log."""
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def _lane_counts(connection: sqlite3.Connection) -> Counter[tuple[int, str]]:
    columns = ", ".join(state.value for state in State)
    counted = {
        (lane, state.value): tasks
        for lane, *counts in connection.execute(f"SELECT lane, {columns} FROM lane")
        for state, tasks in zip(State, counts, strict=True)
        if tasks
    }
    return Counter(counted) + Counter((lane, "queued") for _, _, lane in connection.execute(_ARRIVED))


def _real_counts(connection: sqlite3.Connection) -> dict[tuple[int, str], int]:
    rows = connection.execute(f"SELECT lane, state, count(*) FROM ({_STANDING}) GROUP BY lane, state")
    return {(lane, state): tasks for lane, state, tasks in rows}


def _ready(connection: sqlite3.Connection) -> list[tuple[int, str, int]]:
    ready = f"SELECT number, id, lane FROM ready UNION ALL {_ARRIVED} ORDER BY number"
    return connection.execute(ready).fetchall()


def _queued(connection: sqlite3.Connection) -> list[tuple[int, str, int]]:
    queued = f"SELECT number, id, lane FROM ({_STANDING}) WHERE state = 'queued' ORDER BY number"
    return connection.execute(queued).fetchall()


def _directory(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute("SELECT number, id FROM directory ORDER BY number").fetchall()


def _filed(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    filed = "SELECT number, id FROM task WHERE number <= (SELECT number FROM filed) ORDER BY number"
    return connection.execute(filed).fetchall()
