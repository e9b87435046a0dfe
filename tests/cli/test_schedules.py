"""`fairlead schedule`: added, looked at, paused, run and removed by people and by scripts."""

from __future__ import annotations

from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder

ADD = ("schedule", "add")


def test_a_schedule_is_added_listed_shown_and_removed(folder: Folder) -> None:
    said = folder.ok(
        *ADD, "nightly", "0 3 * * *", "make_report", "kind=long", "n=3", "--timezone", "Europe/Berlin",
        "--overlap", "skip", "--missed", "run_all", "--missed-cap", "7", "--jitter", "30", "--priority", "low",
        "--queue", "reports", "--tag", "eu", "--requires", "gpu", "--timeout", "60", "--max-retries", "2",
        "--start", "2020-01-01", "--end", "+400d",
    ).out  # fmt: skip
    assert said.startswith("nightly is to fire in ")
    header, line = folder.quick("schedule", "list").out.splitlines()
    assert header.split() == ["NAME", "CRON", "TIMEZONE", "TYPE", "NEXT", "LAST", "FIRED"]
    assert line.split()[:8] == ["nightly", "0", "3", "*", "*", "*", "Europe/Berlin", "make_report"]
    shown = folder.quick("schedule", "show", "nightly").out
    for word in ("run_all, at most 7", "skip", "30 s", "reports", "low", "gpu", "eu", '"kind": "long"', "2020-01-01"):
        assert word in shown
    (as_json,) = folder.quick("schedule", "list", "--json").lines
    assert folder.quick("schedule", "show", "nightly", "--json").json == as_json
    assert as_json["task"]["parameters"] == {"kind": "long", "n": 3}
    assert (as_json["missed"], as_json["missed_cap"], as_json["jitter_seconds"]) == ("run_all", 7, 30.0)
    assert folder.quick("schedule", "remove", "nightly").out == "nightly is removed\n"
    assert folder.quick("schedule", "list").out == "no schedules\n"


def test_a_name_is_taken_once_unless_it_is_replaced(folder: Folder) -> None:
    folder.quick(*ADD, "a", "@daily", "work", "--paused")
    ended = folder.quick(*ADD, "a", "@hourly", "work")
    assert (ended.code, "is taken" in ended.err) == (1, True)
    replaced = folder.quick(*ADD, "a", "@hourly", "work", "--replace", "--json").json
    assert (replaced["cron"], replaced["paused"]) == ("@hourly", True)


def test_a_schedule_is_paused_resumed_and_run_now(folder: Folder) -> None:
    folder.quick(*ADD, "a", "every 30 seconds", "echo", "x=1")
    assert folder.quick("schedule", "pause", "a").out == "a is paused\n"
    assert "paused" in folder.quick("schedule", "list").out
    task = folder.quick("schedule", "run-now", "a", "--json").json
    assert (task["task_type"], task["status"], task["tags"]) == ("echo", "queued", ["schedule:a"])
    assert folder.quick("schedule", "run-now", "a").out.endswith(" queued\n")
    assert folder.quick("schedule", "resume", "a").out.startswith("a is to fire in ")
    assert run_inline(folder.engine().schedules.get("a")).status.fired == 2


def test_preview_shows_fire_times_through_a_change_of_the_clocks(folder: Folder) -> None:
    wish = ("--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--start", "2227-03-24T23:00Z", "--count", "2")
    first, second = folder.quick("schedule", "preview", *wish).out.splitlines()
    assert first == "Sun 2227-03-25 03:00:00 +0200  2227-03-25T01:00:00Z"
    assert second == "Mon 2227-03-26 02:30:00 +0200  2227-03-26T00:30:00Z"
    assert folder.quick("schedule", "preview", *wish, "--json").json["fire_times"][0] == {
        "at": "2227-03-25T01:00:00.000000Z",
        "local": "2227-03-25T03:00:00+02:00",
    }
    folder.quick(*ADD, "a", "@yearly", "work", "--end", "+500d")
    assert folder.quick("schedule", "preview", "a").out.endswith("and then never again\n")


def test_what_cannot_be_is_one_clear_line(folder: Folder) -> None:
    folder.quick(*ADD, "a", "@daily", "work")
    for arguments, code, said in (
        ((*ADD, "b", "61 * * * *", "work"), 2, "minute '61' is out of range; use 0 to 59"),
        ((*ADD, "b", "0 0 30 2 *", "work"), 2, "names a day that no year has"),
        ((*ADD, "b", "@daily", "work", "--timezone", "Nowhere"), 2, "timezone 'Nowhere' is unknown"),
        ((*ADD, "b", "@daily", "work", "--missed", "never"), 2, "missed 'never' is unknown; use one of skip"),
        ((*ADD, "b", "@daily", "work", "--jitter", "inf"), 2, "jitter inf is not a number of seconds"),
        ((*ADD, "b", "@daily", "work", "--start", "soon"), 2, "is not a moment"),
        ((*ADD, "two words", "@daily", "work"), 2, "is not a valid name"),
        ((*ADD, "b", "@daily"), 2, "TYPE"),
        (("schedule", "preview"), 2, "give one of them"),
        (("schedule", "preview", "a", "--count", "0"), 2, "use 1 to 1,000"),
        (("schedule", "show", "b"), 1, "schedule 'b' not found"),
        (("schedule", "pause", "b"), 1, "schedule 'b' not found"),
    ):
        ended = folder.quick(*arguments)
        assert (ended.code, said in ended.err.replace("\n", " ")) == (code, True), (arguments, ended.err)
        assert len(ended.err.splitlines()) == 1
