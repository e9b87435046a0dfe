"""Retry rules as an app writes them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import Backoff, Fairlead, InvalidTask, Retry, RetryRule

SLOW = RetryRule(max_retries=10, backoff=Backoff(initial=5))


async def test_errors_are_written_as_types_or_by_name_and_travel_with_the_task_in_their_order() -> None:
    app = Fairlead("memory://")

    @app.task(retry_rules={TimeoutError: SLOW, "requests.HTTPError": RetryRule(max_retries=1), Retry: "reject"})
    async def fetch() -> None: ...

    ruled = (await fetch.submit()).snapshot.spec.backoff
    plain = (await fetch.options(retry_rules={}).submit()).snapshot.spec.backoff
    assert isinstance(ruled, dict)
    assert list(ruled) == ["TimeoutError", "requests.HTTPError", "fairlead.core.errors.Retry", "*"]
    assert ruled["TimeoutError"] == SLOW and ruled["fairlead.core.errors.Retry"].reject
    assert plain == ruled["*"].backoff == Backoff()
    await app.close()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({ValueError: "ignore"}, "says 'ignore' of 'ValueError', which is not a RetryRule"),
        ({"A": 3}, "says 3 of 'A'"),
        ({"A": RetryRule(max_retries=1, reject=True)}, "rejects, so that there is nothing to retry"),
        ({5: "reject"}, "5"),
        ({int: "reject"}, "int"),
        ([ValueError], "mapping"),
    ],
)
def test_rules_that_make_no_sense_are_refused_where_they_are_written(rules: Any, said: str) -> None:
    app = Fairlead("memory://")
    with pytest.raises(InvalidTask, match=said):

        @app.task(retry_rules=rules)
        async def fetch() -> None: ...
