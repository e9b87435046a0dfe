"""Every row of the page of guarantees is held by tests, which are named here.

A row that is added to the page fails until the test that shows it is named; a test that is named must be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.docs.reading import ROOT, rows, section

PAGE: Final = ROOT / "docs/explanation/guarantees.md"

_CAMPAIGN: Final = "tests/chaos/campaign/test_campaign.py::test_a_hundred_kills_leave_no_fault"
_TIERS: Final = "tests/unit/test_diagnosis.py::test_every_tier_is_published_as_it_is"
_POISONS: Final = "tests/poison/test_poisons.py::test_what_a_worker_survives_has_an_outcome_that_tells_it"
_DAMAGED: Final = "tests/engine/test_records.py::test_what_is_damaged_is_set_aside_once_with_its_bytes"
_BEHIND: Final = "src/fairlead/testing/clauses/quarantine.py::test_a_claim_takes_what_is_behind_a_damaged_head"
_FLUSHED: Final = "tests/storage/journal/test_incarnation.py"
_STEPS: Final = "tests/engine/test_stepping_clock.py"

HELD: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "Three answers": {
        "`InvalidTask`, `QueueFull`, `WrongState`, `StoreFull`, `StoreReadOnly`": (
            "src/fairlead/testing/clauses/limits.py::test_a_queue_at_its_bound_refuses",
            "tests/storage/sqlite/test_full_disk.py::test_a_claim_or_settle_that_does_not_fit_changes_nothing",
        ),
        "`StoreRefused`, `StoreMismatch`: a wrong password or key, a database that is not there": (
            "tests/storage/postgres/test_recovery.py::test_who_is_not_let_in_is_told_so_and_not_to_repeat_it",
            "tests/storage/redis/test_trouble.py::test_a_wrong_password_is_named_at_once",
        ),
        "`LeaseLost`": ("src/fairlead/testing/clauses/refusals.py::",),
        "`StoreUnavailable`, or your own timeout around a call": (
            "tests/e2e/test_deadlines.py::test_every_request_is_answered_in_the_documented_time",
        ),
    },
    "What a handler can do to its task": {
        "raises anything": (_POISONS,),
        "raises `SystemExit` or `MemoryError` in an isolated process": (_POISONS,),
        "returns what has no JSON form": (_POISONS,),
        "returns what is too large": (_POISONS,),
        "ignores its cancellation, or blocks its thread": (_POISONS,),
        "blocks the event loop, or the interpreter's lock, past its timeout": (
            "tests/poison/test_poisons.py::test_what_holds_up_the_event_loop_past_the_timeout_has_timed_out",
        ),
        "holds the interpreter's lock past its timeout while its worker is writing to a SQLite file": (
            "tests/e2e/test_blocking.py::test_a_worker_that_locks_the_file_while_its_handler_holds_the_interpreter_is_ended",
        ),
        "forks, and the child process returns from the handler": (
            "tests/worker/test_identity.py::test_a_child_that_falls_out_of_its_handler_answers_for_no_task",
        ),
        "closes the descriptors of an isolated process": (
            "tests/worker/test_identity.py::test_what_is_no_answer_of_the_task_ends_the_process_and_settles_nothing",
        ),
        "ends the worker itself": ("tests/poison/test_poisons.py::test_what_is_the_end_of_a_worker_is_told_as_that",),
        "stops the event loop": (_POISONS,),
        "leaves a log handler that raises": (
            "tests/poison/test_poisons.py::test_a_worker_goes_on_and_leaves_well_whatever_was_spoilt_in_it",
        ),
        "ignores its cancellation when its worker is asked to leave": (
            "tests/poison/test_poisons.py::test_what_swallows_its_cancel_is_handed_back_when_its_worker_leaves",
        ),
    },
    "Durability": {
        "memory": (_TIERS,),
        "SQLite, `synchronous=FULL` (default)": (_TIERS, _CAMPAIGN),
        "SQLite, `synchronous=NORMAL`": (_TIERS,),
        "Redis without an append-only file": (_TIERS,),
        "Redis, append-only file `no`": (_TIERS,),
        "Redis, append-only file `everysec`": (_TIERS,),
        "Redis, append-only file `always`": (_TIERS,),
        "Redis with a journal in PostgreSQL": (_TIERS, _CAMPAIGN),
        "PostgreSQL, `synchronous_commit=on`": (
            _TIERS,
            _CAMPAIGN,
            "tests/storage/postgres/test_recovery.py::test_a_restarted_server_loses_nothing",
        ),
        "PostgreSQL, `synchronous_commit=off`": (_TIERS,),
        "PostgreSQL, `fsync=off`": (_TIERS,),
    },
    "What cannot be stored": {
        "an option of the wrong type or out of range": (
            "tests/properties/test_entrances.py::test_python_says_the_same_wherever_an_option_is_said",
        ),
        "the same over HTTP, on the command line or in a file": (
            "tests/properties/test_entrances.py::test_http_says_the_same",
            "tests/properties/test_entrances.py::test_the_command_line_says_the_same",
        ),
        "the same in a transaction of your own": (
            "tests/properties/test_entrances.py::test_python_says_the_same_wherever_an_option_is_said",
        ),
        "a setting, a backoff, a list of errors or a store URL": (
            "tests/properties/test_stored_types.py::test_what_a_constructor_lets_through_is_read_again_as_it_was",
        ),
        "the settings of a queue, a circuit, a schedule, a key or a worker": (
            "tests/properties/test_stored_types.py::test_a_record_that_is_written_is_read_again",
        ),
    },
    "What a damaged record costs": {
        "a task": (_BEHIND, "tests/cli/test_damaged_tasks.py::"),
        "an API key": ("tests/server/test_gate.py::test_a_key_that_cannot_be_read_closes_the_door_as_one_that_can",),
        "the settings of a queue": (
            "tests/engine/test_records.py::test_a_queue_whose_settings_cannot_be_read_is_paused_until_somebody_decides",
        ),
        "a schedule": (
            "tests/engine/test_records.py::test_a_schedule_that_cannot_be_read_fires_nothing_and_is_not_declared_anew",
        ),
        "a circuit": (
            "tests/engine/test_records.py::test_a_task_type_whose_circuit_was_damaged_has_none_until_one_is_declared",
        ),
        "the session of a browser": ("tests/server/test_session.py::test_a_session_whose_record_was_damaged_is_over",),
        "an operation": (
            "tests/engine/test_records.py::test_an_operation_that_was_damaged_stops_and_the_others_go_on",
        ),
        "the record of a worker, a count, a listener's subscription": (
            "tests/engine/test_records.py::test_the_presence_of_a_worker_that_was_damaged_is_written_again",
        ),
        "memory": (_DAMAGED,),
        "SQLite": (_BEHIND, "tests/conformance/test_sqlite.py::vandal"),
        "Redis": (_BEHIND, "tests/storage/redis/test_quarantine.py::"),
        "Redis with a journal": (
            "tests/storage/journal/test_redis.py::test_a_task_that_the_hot_store_cannot_read_goes_back_as_the_journal_"
            "knows_it",
        ),
        "PostgreSQL": (_BEHIND, "tests/storage/postgres/test_conformance.py::vandal"),
    },
    "What a lost or a wrong Redis can cost": {
        "`FLUSHALL`, or a failover to an empty Redis": (
            f"{_FLUSHED}::test_a_flushed_redis_is_known_and_takes_no_key_until_it_is_rebuilt",
            f"{_FLUSHED}::test_what_is_lost_again_while_it_is_rebuilt_is_put_back_again",
            "tests/e2e/test_rebuild.py::test_what_was_executing_comes_back_by_itself_and_its_key_makes_no_second_task",
            "tests/e2e/test_rebuild.py::test_what_is_lost_is_known_within_seconds",
        ),
        "a node of a Cluster comes back empty": (
            f"{_FLUSHED}::test_one_lost_node_is_known",
            f"{_FLUSHED}::test_who_submits_one_by_one_shares_nobodys_fate",
        ),
        "the URL leads to a Redis that was replaced": (
            f"{_FLUSHED}::test_a_store_that_was_replaced_refuses_everything",
        ),
        "the journal is stopped or hangs": (
            "tests/e2e/test_journal_away.py::test_a_server_goes_on_with_the_keys_it_knows",
            "tests/e2e/test_journal_away.py::test_it_does_not_for_longer_than_is_stated",
        ),
        "the URL leads to a Redis with tasks that the journal does not know": (
            f"{_FLUSHED}::test_a_store_that_has_tasks_of_others_is_not_taken_for_one_that_was_emptied",
        ),
        "the journal has tasks but has never marked a Redis": (
            f"{_FLUSHED}::test_an_old_journal_with_tasks_takes_no_store_that_has_none_of_them",
            f"{_FLUSHED}::test_an_old_journal_whose_store_was_lost_is_rebuilt_when_someone_asks",
        ),
        "the URL leads to an empty Redis": (f"{_FLUSHED}::test_a_store_that_was_replaced_refuses_everything",),
    },
    "What a clock jump can cost": {
        "forward or back": (
            f"{_STEPS}::test_a_server_that_starts_alone_watches_for_one_lease_before_it_gives_up_on_anyone",
            "tests/e2e/test_stepping_clock.py::test_no_task_is_a_dead_letter_because_a_clock_was_set",
        ),
        "forward, past an attempt's timeout plus grace": (f"{_STEPS}::test_no_step_costs_more_than_an_attempt",),
        "forward": (f"{_STEPS}::test_idempotency_windows_are_off_by_the_step_at_most",),
        "back": (f"{_STEPS}::test_no_fire_time_of_a_schedule_is_fired_twice",),
        "back, and a worker dies": (f"{_STEPS}::test_a_worker_that_dies_around_a_step_is_missed_within_two_leases",),
    },
}
"""By section and row, which may be told by its beginning: the tests, or the test classes and files, that hold it."""


def the_sections() -> Iterator[str]:
    """The sections of the page that have a table."""
    for title in re.findall(r"^## (.+)$", PAGE.read_text("utf-8"), re.MULTILINE):
        if rows(section(PAGE, title)):
            yield title


def test_every_table_is_looked_at() -> None:
    assert list(the_sections()) == list(HELD)


@pytest.mark.parametrize("title", HELD)
def test_every_row_has_its_tests(title: str) -> None:
    found = [row[0] for row in rows(section(PAGE, title))]
    known = HELD[title]
    unheld = [row for row in found if not any(row == name or row.startswith((f"{name}:", f"{name},", f"{name} "))
                                              for name in known)]  # fmt: skip
    assert unheld == []
    assert [name for name in known if not any(row.startswith(name) for row in found)] == []


@pytest.mark.parametrize(
    "test", sorted({test for known in HELD.values() for tests in known.values() for test in tests})
)
def test_the_tests_that_are_named_are_there(test: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text("utf-8")
    wanted = rf"{name}\b" if name else "test_"
    assert re.search(rf"^ *(async )?def {wanted}", text, re.MULTILINE), f"{file} has no {name}"
