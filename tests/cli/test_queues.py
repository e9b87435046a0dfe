"""`fairlead queues` and `fairlead workers`: by people and by scripts."""

from __future__ import annotations

import io
import sys

import pytest

from fairlead.cli.setting_options import describe, parse_order
from fairlead.core.errors import InvalidSettings
from fairlead.core.identity import WorkerId
from fairlead.core.instant import MINUTE, SECOND
from fairlead.core.queues.limits import Rate
from fairlead.core.queues.order import HeadStart, Policy, Promote, Strict, Weighted
from fairlead.core.queues.queue import QueueSettings
from fairlead.core.submission import Submission
from fairlead.core.task import Priority
from fairlead.engine.runtime.inline import run_inline
from tests.cli.running import Folder


def test_a_queue_is_paused_and_resumed_and_the_list_says_so(folder: Folder) -> None:
    assert folder.quick("queues", "pause", "emails").out == "queue emails is paused; running tasks continue\n"
    folder.submit("echo")
    header, default, emails = folder.quick("queues", "list").out.splitlines()
    assert header.split() == ["QUEUE", "STATE", "READY", "SCHEDULED", "RUNNING", "SETTINGS"]
    assert default.split() == ["default", "open", "1", "0", "0", "-"]
    assert emails.split() == ["emails", "paused", "0", "0", "0", "-"]
    assert "paused: queue emails" in folder.quick("stats").out
    assert folder.quick("queues", "resume", "emails", "--json").json == {"queue": "emails", "paused": False}
    assert run_inline(folder.engine().queues.all()) == {}


def test_a_task_type_is_paused_and_resumed(folder: Folder) -> None:
    assert folder.quick("queues", "pause", "--type", "echo").out == "task type echo is paused; running tasks continue\n"
    folder.submit("echo")
    assert "paused task types: echo" in folder.quick("queues", "list").out
    assert "of paused types: echo" in folder.quick("queues", "show", "default").out
    assert folder.quick("queues", "list", "--json").json["paused_types"] == ["echo"]
    folder.quick("queues", "resume", "--type", "echo")
    assert run_inline(folder.engine().queues.paused_types()) == []


def test_a_queue_is_changed_and_shown(folder: Folder) -> None:
    said = folder.quick(
        "queues", "set", "emails", "--bound", "1000", "--order", "promote:low=60", "--priority", "low",
        "--timeout", "30", "--max-retries", "0", "--max-crashes", "1",
    ).out  # fmt: skip
    assert said.startswith(
        "queue emails has bound 1,000, order promote:low=60,medium=1200,high=1800,share=critical, priority low"
    )
    assert run_inline(folder.engine().queues.get("emails")) == QueueSettings(
        bound=1000, order=Promote(low=MINUTE), priority=Priority.LOW, timeout=30 * SECOND, max_retries=0, max_crashes=1
    )
    shown = folder.quick("queues", "show", "emails").out
    assert "bound      1,000\n" in shown and "timeout    30 s\n" in shown
    settings = folder.quick("queues", "show", "emails", "--json").json["settings"]
    assert (settings["bound"], settings["order"]["low_seconds"]) == (1000, 60)
    folder.quick("queues", "set", "emails", "--bound", "default", "--order", "default", "--timeout", "default")
    assert run_inline(folder.engine().queues.get("emails")) == QueueSettings(
        priority=Priority.LOW, max_retries=0, max_crashes=1
    )
    assert folder.quick("queues", "set", "emails", "--reset").out == "queue emails has the settings of all\n"


def test_what_cannot_be_is_one_clear_line(folder: Folder) -> None:
    folder.submit("echo")
    for arguments, said in (
        (("queues", "pause"), "name either a queue or a task type"),
        (("queues", "pause", "a", "--type", "b"), "and not both"),
        (("queues", "pause", "not a name"), "is not a valid name"),
        (("queues", "set", "emails"), "nothing is to be changed"),
        (("queues", "set", "emails", "--bound", "many"), "--bound 'many' is not a whole number"),
        (("queues", "set", "emails", "--bound", "-5"), "bound -5"),
        (("queues", "set", "emails", "--order", "random"), "order 'random' is unknown"),
        (("queues", "set", "emails", "--priority", "urgent"), "priority 'urgent' is unknown"),
        (("queues", "set", "emails", "--timeout", "inf"), "not a number of seconds"),
        (("queues", "purge", "default"), "pass --yes"),
        (("workers", "drain"), "no worker is named"),
        (("workers", "pause"), "no worker is named"),
    ):
        ended = folder.quick(*arguments)
        assert (ended.code, ended.out) == (2, ""), ended
        assert said in ended.error
    ended = folder.quick("workers", "show", "nobody")
    assert ended.code == 1 and "worker nobody not found" in ended.error


class Terminal(io.StringIO):
    """A person at a keyboard."""

    def isatty(self) -> bool:
        return True


def test_a_purge_is_confirmed_by_the_queues_name(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.submit("echo")
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    refused = folder.quick("queues", "purge", "default")
    assert (refused.code, refused.out) == (1, "nothing was removed\n")
    assert "1 tasks wait in queue default" in refused.err
    monkeypatch.setattr(sys, "stdin", Terminal("default\n"))
    done = folder.quick("queues", "purge", "default")
    assert (done.code, done.out) == (0, "1 tasks of queue default are removed: 1 queued, 0 scheduled\n")
    folder.submit("echo")
    assert folder.quick("queues", "purge", "default", "--yes", "--json").json == {
        "queue": "default",
        "scheduled": 0,
        "queued": 1,
    }


def test_workers_are_listed_shown_and_drained(folder: Folder) -> None:
    folder.submit("echo")
    assert folder.quick("workers", "list").out == "no workers\n"
    engine = folder.engine()
    run_inline(engine.worker_records.register(
        WorkerId("h-1"), queues=["default"], capacity=4, capabilities=["gpu"], types=["echo"], host="h", version="1.2"
    ))  # fmt: skip
    run_inline(engine.worker_records.register(WorkerId("g-1"), queues=["default"], capacity=4, host="g"))
    (task,) = run_inline(engine.claim(WorkerId("h-1"), ["default"], limit=1))
    header, second, first = folder.quick("workers", "list").out.splitlines()
    assert header.split()[:4] == ["ID", "STATE", "RUNNING", "QUEUES"]
    assert first.split()[:7] == ["h-1", "active", "0/4", "default", "gpu", "h", "1.2"]
    assert second.startswith("g-1")
    assert [worker["worker_id"] for worker in folder.quick("workers", "list", "--json").lines] == ["g-1", "h-1"]
    assert task.id in folder.quick("workers", "show", "h-1").out
    whole = folder.quick("workers", "show", "h-1", "--json").json
    assert [each["task_id"] for each in whole["running_tasks"]] == [task.id]
    assert folder.quick("workers", "drain", "h-1").out.startswith("drain of h-1 requested")
    assert "drain requested" in folder.quick("workers", "show", "h-1").out
    drained = folder.quick("workers", "drain", "--on-host", "g", "--json").json
    assert [worker["worker_id"] for worker in drained["workers"]] == ["g-1"]
    missing = folder.quick("workers", "drain", "--on-host", "nowhere")
    assert missing.code == 1 and "no worker runs on the host 'nowhere'" in missing.error
    assert "worker g-1 is active" in folder.quick("workers", "forget", "g-1").error


def test_workers_are_paused_and_resumed(folder: Folder) -> None:
    engine = folder.engine()
    for name, host in (("h-1", "h"), ("g-1", "g"), ("g-2", "g")):
        run_inline(engine.worker_records.register(WorkerId(name), queues=["default"], capacity=4, host=host))
    assert folder.quick("workers", "pause", "h-1").out.startswith("h-1 is paused; it ran 0 tasks")
    assert "state      paused" in folder.quick("workers", "show", "h-1").out
    asked = folder.quick("workers", "pause", "nobody", "--on-host", "g", "--json")
    assert asked.code == 1 and [each["worker"] for each in asked.json["errors"]] == ["nobody"]
    shown = [(each["worker_id"], each["status"], each["paused"]) for each in asked.json["workers"]]
    assert shown == [("g-1", "active", True), ("g-2", "active", True)]
    assert [line.split()[1] for line in folder.quick("workers", "list").out.splitlines()] == ["STATE", *["paused"] * 3]
    assert "3 paused" in folder.quick("stats").out
    resumed = folder.quick("workers", "resume", "g-1", "g-2").out.splitlines()
    assert resumed == ["g-1 is not paused any more", "g-2 is not paused any more"]
    folder.quick("workers", "drain", "h-1")
    run_inline(engine.worker_records.beat(WorkerId("h-1"), running=0))
    drained = folder.quick("workers", "show", "h-1").out
    assert "state      draining" in drained and "paused" in drained


def test_a_lost_worker_is_shown_with_what_became_of_its_tasks(folder: Folder) -> None:
    engine = folder.engine()
    run_inline(engine.worker_records.register(WorkerId("w"), queues=["default"], capacity=4))
    run_inline(engine.submit(Submission(type="echo")))
    (task,) = run_inline(engine.claim(WorkerId("other"), ["default"], limit=1))
    run_inline(engine.lost_tasks.note([task], engine.clock.now()))
    run_inline(engine.store.put("lost", "w", run_inline(engine.store.scan("lost"))[0].value))
    shown = folder.quick("workers", "show", "w").out
    assert "1 tasks were taken from it" in shown
    assert f"{task.id}" in shown and "executing" in shown


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("strict", Strict()),
        ("promote", Promote()),
        ("promote:low=60,medium=0.5", Promote(low=MINUTE, medium=SECOND // 2)),
        ("promote:share=all", Promote(share="all")),
        ("head-start:critical=10", HeadStart(critical=10 * SECOND)),
        ("weighted:low=3", Weighted(low=3)),
    ],
)
def test_an_order_reads_as_it_is_written(text: str, policy: Policy) -> None:
    assert parse_order(text) == policy
    assert parse_order(describe(policy)) == policy


@pytest.mark.parametrize(
    "text", ["", "fifo", "strict:low=1", "promote:low", "promote:low=x", "promote:share=high", "weighted:low=0.5"]
)
def test_an_order_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings):
        parse_order(text)


def test_limits_are_set_shown_and_lifted(folder: Folder) -> None:
    said = folder.quick(
        "queues", "set", "emails", "--running", "5", "--rate", "100/m", "--type-running", "send=2",
        "--type-rate", "send=10/s", "--type-rate", "rare=1/h", "--key-running", "0",
    ).out  # fmt: skip
    assert "at once 5, 100/m, send at once 2, 10/s, rare at once 1/h, each key any number" in said
    assert "send at once" in folder.quick("queues", "show", "emails").out
    folder.quick("queues", "set", "emails", "--type-rate", "rare=default", "--rate", "default", "--key-rate", "1/s")
    assert run_inline(folder.engine().queues.get("emails")) == QueueSettings(
        running=5,
        type_running={"send": 2},
        type_rate={"send": Rate(10, SECOND)},
        key_running=0,
        key_rate=Rate(1, SECOND),
    )


def test_a_queue_is_bound_to_a_tenant_shown_and_set_free(folder: Folder) -> None:
    assert "tenant acme" in folder.quick("queues", "set", "emails", "--tenant", "acme").out
    assert "tenant     acme" in folder.quick("queues", "show", "emails").out
    folder.quick("submit", "send", "--queue", "emails")
    lines = '{"type":"send","queue":"emails","tenant":"umbrella"}\n'
    refused = folder.run("submit", "--from-file", str(folder.write("tasks.jsonl", lines)))
    assert refused.code == 1 and "which is bound to another tenant" in refused.out + refused.err
    (task,) = run_inline(folder.engine().find())
    assert task.spec.tenant == "acme"
    mixed = folder.run("queues", "set", "emails", "--tenant", "umbrella")
    assert mixed.code == 2 and "while it holds tasks of tenant 'acme'" in mixed.err
    assert run_inline(folder.engine().queues.get("emails")).tenant == "acme"
    folder.quick("queues", "set", "emails", "--reset")
    assert run_inline(folder.engine().queues.get("emails")).tenant == "acme"
    folder.quick("queues", "set", "emails", "--tenant", "default")
    assert run_inline(folder.engine().queues.all()) == {}


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--rate", "fast", "such as 10/s"),
        ("--running", "0", "1 or more"),
        ("--type-running", "send", "send=2"),
        ("--type-rate", "send=0/s", "such as 10/s"),
    ],
)
def test_limits_that_make_no_sense_are_refused(folder: Folder, option: str, value: str, remedy: str) -> None:
    refused = folder.quick("queues", "set", "emails", option, value)
    assert refused.code == 2
    assert remedy in refused.err


def test_a_task_is_submitted_with_a_concurrency_key(folder: Folder) -> None:
    shown = folder.quick("submit", "echo", "--concurrency-key", "customer 7", "--json").json
    assert "customer 7" in folder.quick("show", shown["task_id"]).out


def test_autoscale_says_how_many_workers_there_should_be(folder: Folder) -> None:
    folder.submit("echo", "message=hi", "--queue", "mail")
    told = folder.quick("autoscale", "--queue", "mail", "--capacity", "4", "--json").json
    assert (told["suggested_workers"], told["ready"], told["capacity_per_worker"]) == (1, 1, 4)
    assert folder.quick("autoscale", "--queue", "other", "--json").json["suggested_workers"] == 0
    text = folder.quick("autoscale").out
    assert "1 suggested, 0 there" in text and "1 ready, 0 executing" in text
    for arguments, complaint in (
        (("--capacity", "0"), "capacity 0 is out of range"),
        (("--within-seconds", "0"), "a backlog cannot be worked off within 0 s"),
        (("--queue", "a b"), "queue 'a b' is not a valid name"),
    ):
        refused = folder.quick("autoscale", *arguments)
        assert refused.code == 2 and complaint in refused.error


def test_who_shares_a_queue_is_shown_by_key(folder: Folder) -> None:
    folder.submit("echo")
    assert "fairlead queues set QUEUE --fair tenant" in folder.ok("queues", "tenants").out
    folder.ok("queues", "set", "mail", "--fair", "tenant", "--weight", "acme=3")
    for tenant in ("acme", "acme", "umbrella"):
        folder.quick("submit", "echo", "--queue", "mail", "--fair-key", tenant)
    (shared,) = folder.quick("queues", "tenants", "--json").json["queues"]
    told = [(each["key"], each["waiting"], each["weight"], each["part_of_turns"]) for each in shared["tenants"]]
    assert told == [("acme", 2, 3, 0.75), ("umbrella", 1, 1, 0.25)]
    assert "acme" in folder.quick("queues", "tenants", "mail").out
    assert folder.quick("queues", "tenants", "other", "--json").json == {"queues": []}
