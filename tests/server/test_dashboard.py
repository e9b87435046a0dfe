"""The dashboard as the server gives it: one page at all its addresses, wherever the server is, and nothing inline."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fairlead.admin.engine import AdminEngine
from fairlead.server.app import build
from fairlead.server.docs.pages import ENDPOINTS
from fairlead.server.routes.dashboard import PATHS, POLICY, Dashboard
from fairlead.server.settings import ServerSettings
from fairlead.server.state import ServerState
from fairlead.storage.memory import MemoryStore
from tests.server.serving import Service

INDEX = """<!doctype html><html lang="en" data-try-it="off"><head>
<script type="module" src="./assets/index-abc123.js"></script>
<link rel="stylesheet" href="./assets/index-def456.css"></head></html>"""


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What a build makes."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    for name, text in (("index-abc123.js", "export {}"), ("index-def456.css", "b{}")):
        (assets / name).write_text(text)
        (assets / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "secret.js").write_text("not an asset")
    return tmp_path


@pytest.fixture
async def engine() -> AsyncIterator[AdminEngine]:
    engine = AdminEngine(MemoryStore())
    yield engine
    await engine.close()


def caller(
    engine: AdminEngine, folder: Path, settings: ServerSettings | None = None, root_path: str = ""
) -> httpx.AsyncClient:
    application = build(ServerState(engine, settings), Dashboard(folder).endpoints)
    transport = httpx.ASGITransport(application, root_path=root_path)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", PATHS)
async def test_the_page_is_at_all_its_addresses_and_leads_back_to_its_assets(
    engine: AdminEngine, built: Path, path: str
) -> None:
    async with caller(engine, built) as client:
        address = httpx.URL("http://127.0.0.1").join(path.replace("{id}", "some%20name%3Cb%3E"))
        answer = await client.get(address, params={"q": "state:failed", "cursor": "x"})
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        script = answer.text.partition('src="')[2].partition('"')[0]
        assert address.join(script).path == "/assets/index-abc123.js"
        assert (await client.get(address.join(script))).status_code == 200


async def test_behind_a_prefix_the_page_names_it(engine: AdminEngine, built: Path) -> None:
    async with caller(engine, built, root_path="/tools/fairlead") as client:
        for path in ("/tools/fairlead/", "/tools/fairlead/tasks/abc"):
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert 'src="/tools/fairlead/assets/index-abc123.js"' in answer.text
        assert (await client.get("/tools/fairlead/assets/index-abc123.js")).status_code == 200


async def test_the_page_is_asked_for_anew_and_its_assets_are_kept_for_ever(engine: AdminEngine, built: Path) -> None:
    async with caller(engine, built) as client:
        page = await client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
        assert again.status_code == 304
        asset = await client.get("/assets/index-abc123.js")
        assert "immutable" in asset.headers["cache-control"]
        assert asset.headers["content-encoding"] == "gzip" and asset.text == "export {}"
        plain = await client.get("/assets/index-def456.css", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers and plain.text == "b{}"
        assert plain.headers["content-type"].startswith("text/css")


async def test_nothing_but_the_built_scripts_may_run(engine: AdminEngine, built: Path) -> None:
    async with caller(engine, built) as client:
        answer = await client.get("/tasks")
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY and "script-src 'self'" in POLICY


@pytest.mark.parametrize(
    "name", ["secret.js", "..%2fsecret.js", "%2e%2e", "index-abc123.js.gz", "index.html", "nothing.js", "a%00.js"]
)
async def test_nothing_but_assets_can_be_had(engine: AdminEngine, built: Path, name: str) -> None:
    async with caller(engine, built) as client:
        answer = await client.get(f"/assets/{name}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_playground_is_there_only_where_it_was_asked_for(engine: AdminEngine, built: Path) -> None:
    async with caller(engine, built) as client:
        assert 'data-try-it="off"' in (await client.get("/")).text
    async with caller(engine, built, ServerSettings(try_it=True)) as client:
        assert 'data-try-it="on"' in (await client.get("/")).text


async def test_without_a_build_the_page_says_how_to_make_one(engine: AdminEngine, tmp_path: Path) -> None:
    async with caller(engine, tmp_path / "missing") as client:
        answer = await client.get("/tasks/abc")
        assert answer.status_code == 200
        assert "make dashboard" in answer.text and 'href="../docs"' in answer.text
        assert (await client.get("/healthz")).status_code == 200


async def test_the_page_can_only_be_looked_at(engine: AdminEngine, built: Path) -> None:
    async with caller(engine, built) as client:
        refused = await client.post("/tasks")
        head = await client.head("/")
    assert refused.status_code == 405 and refused.headers["allow"] == "GET, HEAD"
    assert head.status_code == 200


def test_pages_are_no_part_of_the_api() -> None:
    assert not {endpoint.path for endpoint in ENDPOINTS} & {*PATHS, "/assets/{name}"}


async def test_the_history_is_made_of_samples(in_memory: Service) -> None:
    assert (await in_memory.get("/api/v1/queue/history"))["samples"] == []
    await in_memory.submit(priority="high")
    in_memory.advance(5)
    await in_memory.state.history.take()
    (task,) = await in_memory.claim()
    assert task.id
    await in_memory.state.history.take()
    before, after = (await in_memory.get("/api/v1/queue/history"))["samples"]
    assert before["depths"] == {"critical": 0, "high": 1, "medium": 0, "low": 0}
    assert (before["oldest_age_seconds"], before["executing"]) == (5.0, 0)
    assert (sum(after["depths"].values()), after["executing"]) == (0, 1)


async def test_the_history_forgets_what_is_old(in_memory: Service) -> None:
    for _ in range(400):
        await in_memory.state.history.take()
    assert len((await in_memory.get("/api/v1/queue/history"))["samples"]) == 360
