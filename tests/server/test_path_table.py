"""Where paths lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import compile_path

from fairlead.server.http.url import PathTable, path_of

PLACES = {
    path: path
    for path in (
        "/", "/tasks", "/tasks/{task}", "/tasks/batch", "/tasks/{task}/explain", "/workers/register",
        "/workers/{worker}/poll", "/workers/{worker}", "/kept/{kind}/{name}", "/kept/lost/{name}", "/kept/{kind}/last",
    )
}  # fmt: skip
SEGMENTS = st.sampled_from(
    ["", "tasks", "batch", "explain", "workers", "register", "poll", "kept", "lost", "last", "x", "{task}"]
)


def found(path: str) -> tuple[str, dict[str, str]] | None:
    place = PathTable(PLACES).find(path)
    return None if place is None else (place[0], dict(place[1]))


@pytest.mark.parametrize(
    ("path", "place", "names"),
    [
        ("/", "/", {}),
        ("/tasks/batch", "/tasks/batch", {}),
        ("/tasks/b", "/tasks/{task}", {"task": "b"}),
        ("/workers/register/poll", "/workers/{worker}/poll", {"worker": "register"}),
        ("/kept/lost/last", "/kept/lost/{name}", {"name": "last"}),
        ("/kept/found/last", "/kept/{kind}/last", {"kind": "found"}),
        ("/kept/found/one", "/kept/{kind}/{name}", {"kind": "found", "name": "one"}),
    ],
)
def test_the_pattern_counts_that_says_the_earliest_segments_itself(
    path: str, place: str, names: dict[str, str]
) -> None:
    assert found(path) == (place, names)


@pytest.mark.parametrize("path", ["", "tasks", "/tasks/", "/tasks//explain", "//tasks", "/kept/a/b/c", "/nowhere"])
def test_a_path_that_no_pattern_has_leads_nowhere(path: str) -> None:
    assert found(path) is None


@given(st.lists(SEGMENTS, max_size=4))
def test_a_path_leads_somewhere_if_and_only_if_a_pattern_matches_it(segments: list[str]) -> None:
    path = "/".join(["", *segments])
    matching = {pattern for pattern in PLACES if compile_path(pattern)[0].match(path)}
    place = found(path)
    assert matching if place is not None else not matching
    if place is not None:
        assert place[0] in matching
        assert place[0].format(**place[1]) == path


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("", "/tasks", "/tasks"),
        ("/queue", "/queue/tasks", "/tasks"),
        ("/queue", "/queue", ""),
        ("/queue", "/queues/tasks", "/queues/tasks"),
        ("/queue", "/tasks", "/tasks"),
    ],
)
def test_the_root_of_the_application_is_no_part_of_a_path(root: str, path: str, below: str) -> None:
    assert path_of({"path": path, "root_path": root}) == below
