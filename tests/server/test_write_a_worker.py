"""The page "write a worker in any language": its requests are made, in order, and answered as it says."""

from __future__ import annotations

import json
from typing import Any, Final

from fairlead.core.task import State
from tests.docs.reading import ROOT, Block, blocks
from tests.server.serving import Service

PAGE: Final = ROOT / "docs" / "how-to" / "write-a-worker.md"
MADE: Final = ("worker_id", "task_id", "lease", "created_at")
"""What is another every time."""


class Reader:
    """Knows what the page calls things, and what they are called here."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def real(self, text: str) -> str:
        for told, made in self._real.items():
            text = text.replace(told, made)
        return text

    def learn(self, told: Any, answered: Any) -> None:
        """Take note of what is made anew in an answer."""
        if isinstance(told, dict) and isinstance(answered, dict):
            for key in told.keys() & answered.keys():
                if key in MADE and told[key] not in self._real.values():
                    self._real.setdefault(told[key], answered[key])
                self.learn(told[key], answered[key])
        elif isinstance(told, list) and isinstance(answered, list):
            for one, other in zip(told, answered, strict=False):
                self.learn(one, other)


def same(told: Any, answered: Any) -> bool:
    """Whether an answer is as it is told; a text that ends with … may go on."""
    match told, answered:
        case dict(), dict():
            return told.keys() == answered.keys() and all(same(told[key], answered[key]) for key in told)
        case list(), list():
            return len(told) == len(answered) and all(same(*pair) for pair in zip(told, answered, strict=True))
        case str(), str() if told.endswith("…"):
            return answered.startswith(told[:-1])
        case _:
            return bool(told == answered)


def parted(block: Block) -> tuple[list[str], str]:
    """The words of the first line, and the body."""
    head, _, body = block.body.partition("\n\n")
    return head.split(), body


async def test_every_request_of_the_page_is_answered_as_it_says(in_memory: Service) -> None:
    await in_memory.submit(parameters={"to": "kim@example.com"}, required_capabilities=["smtp"])
    told = [block for block in blocks(PAGE) if block.language == "http"]
    assert len(told) == 2 * 10
    reader = Reader()
    for request, response in zip(told[::2], told[1::2], strict=True):
        (method, path), body = parted(request)
        (_, status), answer = parted(response)
        made = await in_memory.client.request(
            method, reader.real(path), content=reader.real(body), headers={"content-type": "application/json"}
        )
        assert made.status_code == int(status), (path, made.text)
        reader.learn(json.loads(answer), made.json())
        assert same(json.loads(reader.real(answer)), made.json()), (path, made.json())
    (task,) = await in_memory.engine.find()
    assert task.state is State.SCHEDULED
