"""Retry rules as an app writes them."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead import Backoff, Fairlead, InvalidTask, Retry, RetryRule
from fairlead.core.instant import SECOND

SLOW = RetryRule(max_retries=10, backoff=Backoff(initial=5 * SECOND))


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
        ({ValueError: "ignore"}, "'ValueError' is 'ignore'"),
        ({"A": 3}, "'A' is 3"),
        ({"A": RetryRule(max_retries=20_000)}, "max_retries 20000"),
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
