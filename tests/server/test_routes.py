"""The documents that a server shows of itself: whole, cacheable, harmless and readable without a network."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import httpx
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.server.app import build
from fairlead.server.docs.openapi import operation_id
from fairlead.server.docs.pages import ENDPOINTS, curl, inline, page
from fairlead.server.http.problems import KINDS
from fairlead.server.state import ServerState
from fairlead.storage.memory import MemoryStore
from tests.server.validating import DOCUMENT, ValidatingTransport


class Reader(HTMLParser):
    """What a browser makes of a page: its anchors, its links, what it loads, and what of it would run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.anchors: list[str] = []
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag not in ("meta", "link"):
            self.open.append(tag)
        if tag in ("script", "style") or any(name == "style" or name.startswith("on") for name in named):
            self.inline.append(tag)
        if "id" in named:
            self.anchors.append(named["id"])
        if tag == "a":
            self.links.add(named["href"])
        elif "href" in named or "src" in named:
            self.loads.add(named.get("href") or named["src"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
async def reader() -> AsyncIterator[httpx.AsyncClient]:
    """Somebody without a key."""
    engine = AdminEngine(MemoryStore())
    transport = ValidatingTransport(httpx.ASGITransport(build(ServerState(engine))))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
    await engine.close()


async def test_the_openapi_document_is_that_of_the_endpoints(reader: httpx.AsyncClient) -> None:
    answer = await reader.get("/openapi.json")

    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == DOCUMENT


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/docs.css"])
async def test_a_document_is_not_sent_to_those_who_have_it(reader: httpx.AsyncClient, path: str) -> None:
    first = await reader.get(path)
    known = first.headers["etag"]

    assert first.status_code == 200
    for shown in (known, f'"other", W/{known}', "*"):
        again = await reader.get(path, headers={"if-none-match": shown})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", known)
    assert (await reader.get(path, headers={"if-none-match": '"other"'})).status_code == 200


async def test_the_page_loads_nothing_but_its_style_and_has_nothing_that_runs(reader: httpx.AsyncClient) -> None:
    answer = await reader.get("/docs")
    read = Reader(answer.text)

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert read.loads == {"/docs.css"}
    assert read.inline == []
    style = (await reader.get("/docs.css")).text
    assert not re.search(r"url\(|@import", style)


async def test_every_link_of_the_page_leads_somewhere(reader: httpx.AsyncClient) -> None:
    read = Reader((await reader.get("/docs")).text)

    assert read.open == []
    assert len(set(read.anchors)) == len(read.anchors)
    assert {link[1:] for link in read.links if link.startswith("#")} <= set(read.anchors)
    assert {link for link in read.links if not link.startswith("#")} == {"/openapi.json"}


async def test_the_page_has_every_endpoint_and_every_kind_of_problem(reader: httpx.AsyncClient) -> None:
    read = Reader((await reader.get("/docs")).text)

    assert {*map(operation_id, ENDPOINTS), *KINDS} <= set(read.anchors)


def test_what_is_said_of_an_endpoint_cannot_become_markup() -> None:
    evil = "<script>alert(1)</script>\"'&"
    operation = DOCUMENT["paths"]["/docs"]["get"] | {"summary": evil, "description": f"`{evil}`"}
    text = page(DOCUMENT | {"paths": {"/docs": {"get": operation}}})

    assert Reader(text).inline == []
    assert "<script" not in text


def test_backticks_become_code() -> None:
    assert inline("use `a<b` & go") == "use <code>a&lt;b</code> &amp; go"


def test_an_example_can_be_pasted_into_a_shell() -> None:
    operation = {
        "parameters": [{"in": "path", "name": "task_id", "example": "0f"}],
        "x-role": "submit",
        "requestBody": {"content": {"application/json": {"example": {"note": "it's"}}}},
    }

    assert curl("POST", "/tasks/{task_id}", operation) == (
        "curl -X POST http://127.0.0.1:8420/tasks/0f \\\n"
        '  -H "Authorization: Bearer $FAIRLEAD_KEY" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        '  -d \'{"note": "it\'"\'"\'s"}\''
    )
