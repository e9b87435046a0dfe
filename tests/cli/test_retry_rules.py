"""Retry rules from the command line."""

from __future__ import annotations

from fairlead.core.retry import Backoff, RetryRule
from fairlead.core.task import Task
from tests.cli.running import Folder


def rules_of(task: Task) -> list[tuple[str, RetryRule]]:
    assert isinstance(task.spec.backoff, dict)
    return list(task.spec.backoff.items())


def test_submit_takes_rules_in_their_order(folder: Folder) -> None:
    folder.ok("submit", "a", "--retry-rule", "net.Timeout=10", "--retry-rule", "ValueError=reject")
    (task,) = folder.tasks()
    assert rules_of(task) == [
        ("net.Timeout", RetryRule(max_retries=10)),
        ("ValueError", RetryRule(reject=True)),
        ("*", RetryRule(backoff=Backoff())),
    ]
    refused = folder.quick("submit", "a", "--retry-rule", "Timeout")
    assert refused.code != 0 and "TimeoutError=10" in refused.err


def test_a_line_of_a_file_may_have_rules(folder: Folder) -> None:
    line = '{"type": "a", "retry_rules": [{"error": "A", "reject": true}]}'
    folder.ok("submit", "--from-file", "-", stdin=line)
    (task,) = folder.tasks()
    assert rules_of(task)[0] == ("A", RetryRule(reject=True))
