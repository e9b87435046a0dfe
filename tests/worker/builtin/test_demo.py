"""The handlers for trying things, and the set of all built-in ones."""

from __future__ import annotations

import pytest

from fairlead.core.errors import InvalidSettings
from fairlead.core.retry import Reject, Retry
from fairlead.worker.builtin import BuiltinSettings, builtin_handlers, echo, fail, sleep


@pytest.mark.parametrize("message", ["hello", {"a": [1, None]}, 10**40])
async def test_echo_returns_what_it_is_given(message: object) -> None:
    assert message == await echo(message)


async def test_sleep_returns_how_long_it_slept() -> None:
    assert await sleep(0.001) == 0.001


async def test_fail_fails_like_a_handler_with_a_bug() -> None:
    with pytest.raises(RuntimeError, match="boom"):
        await fail("boom")


async def test_fail_can_fail_for_good() -> None:
    with pytest.raises(Reject, match="boom"):
        await fail("boom", retriable=False)


def test_all_built_in_handlers_are_given_by_task_type() -> None:
    handlers = builtin_handlers(BuiltinSettings())

    assert list(handlers) == ["echo", "sleep", "fail", "webhook", "email"]


def test_without_settings_webhooks_are_safe_and_email_is_off() -> None:
    handlers = builtin_handlers(BuiltinSettings())

    with pytest.raises(Reject, match="webhook_allow_http"):
        handlers["webhook"]("http://example.com/")
    with pytest.raises(Reject, match="loopback"):
        handlers["webhook"]("https://127.0.0.1/")
    with pytest.raises(Reject, match="smtp_url is not set"):
        handlers["email"]("ada@example.com", "subject", "text")


def test_the_settings_reach_the_handlers() -> None:
    handlers = builtin_handlers(BuiltinSettings(webhook_allow_private=True, webhook_allow_http=True))

    with pytest.raises(Retry, match="ConnectionRefusedError"):
        handlers["webhook"]("http://127.0.0.1:1/")


@pytest.mark.parametrize(
    "settings",
    [
        BuiltinSettings(webhook_timeout=0),
        BuiltinSettings(smtp_url="http://mail"),
        BuiltinSettings(email_from="nobody"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_any_task_runs(settings: BuiltinSettings) -> None:
    with pytest.raises(InvalidSettings):
        builtin_handlers(settings)
