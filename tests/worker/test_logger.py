"""The logger of the worker and the engine: who listens to it may fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fairlead.engine.runtime.telemetry import Logger


class Away(logging.Handler):
    """As one that ships lines to a server, which is away."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is away")


@pytest.fixture
def name() -> Iterator[str]:
    name = "fairlead.tests.logger"
    logger = logging.getLogger(name)
    yield name
    logger.handlers.clear()
    logger.filters.clear()


def test_a_handler_that_raises_harms_nobody_and_is_told(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger(name).addHandler(Away())
    Logger(name).warning("%d tasks", 3)
    assert "the log server is away" in capsys.readouterr().err


def test_a_filter_that_raises_harms_nobody(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise ValueError("no")

    logging.getLogger(name).addFilter(refuse)
    try:
        raise KeyError("x")
    except KeyError:
        Logger(name).exception("it failed")
    logging.getLogger(name).removeFilter(refuse)
    Logger(name).error("%s", "heard")
    assert [record.getMessage() for record in caplog.records] == ["heard"]


def test_where_python_is_to_be_silent_about_such_errors_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logging.getLogger(name).addHandler(Away())
    Logger(name).error("lost")
    assert capsys.readouterr().err == ""
