"""The documentation that a server shows at /docs: plain HTML and one style sheet, nothing from elsewhere."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fairlead.server.docs.openapi import title_of
from fairlead.server.docs.schema_text import Wording, curl
from fairlead.server.docs.schemas import REFERENCE, Schema, fields
from fairlead.server.http.problems import EXPLAINED, KINDS

STYLE: Final = "/docs.css"

_CODE: Final = re.compile(r"`([^`]+)`")
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fairlead {version}: the HTTP API</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<nav aria-label="Contents">
{contents}
</nav>
<main>
{main}
</main>
</body>
</html>
"""
_INTRODUCTION: Final = """\
<h1>The HTTP API</h1>
<p>fairlead {version}. Requests and answers are JSON; programs read <a href="/openapi.json">openapi.json</a>. Where a
role is named, send a key that has it as <code>Authorization: Bearer &lt;key&gt;</code>. What goes wrong is answered
with <a href="#problems">a problem document</a>.</p>"""


def escape(text: object) -> str:
    """Text as HTML, in which it means nothing but itself."""
    return html.escape(str(text))


def inline(text: str) -> str:
    """A sentence as HTML, with what stands in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def page(document: Mapping[str, Any]) -> str:
    """The whole page."""
    return _Page(document).made()


class _Page:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._shapes: Mapping[str, Schema] = document["components"]["schemas"]
        self._wording = Wording(
            link=lambda name: f'<a href="#shape-{escape(name)}">{escape(name)}</a>',
            code=lambda text: f"<code>{escape(text)}</code>",
            escape=escape,
        )

    def made(self) -> str:
        version = escape(self._document["info"]["version"])
        parts = [_INTRODUCTION.format(version=version), *self._groups(), *self._problems(), *self._shape_sections()]
        return _PAGE.format(version=version, style=STYLE, contents="\n".join(self._contents()), main="\n".join(parts))

    def _contents(self) -> Iterator[str]:
        for tag in self._document["tags"]:
            yield f'<h2><a href="#{escape(tag["name"])}">{escape(title_of(tag["name"]))}</a></h2>\n<ul>'
            for _, _, operation in self._operations(tag["name"]):
                yield f'<li><a href="#{escape(operation["operationId"])}">{escape(operation["summary"])}</a></li>'
            yield "</ul>"
        yield '<h2><a href="#problems">problems</a></h2>\n<h2><a href="#shapes">shapes</a></h2>'

    def _operations(self, tag: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        for path, methods in self._document["paths"].items():
            for method, operation in methods.items():
                if tag in operation["tags"]:
                    yield method.upper(), path, operation

    def _groups(self) -> Iterator[str]:
        for tag in self._document["tags"]:
            yield f'<section>\n<h2 id="{escape(tag["name"])}">{escape(title_of(tag["name"]))}</h2>'
            yield from (f"<p>{inline(paragraph)}</p>" for paragraph in tag["description"].split("\n\n"))
            for method, path, operation in self._operations(tag["name"]):
                yield from self._operation(method, path, operation)
            yield "</section>"

    def _operation(self, method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
        yield f'<article id="{escape(operation["operationId"])}">\n<h3>{escape(operation["summary"])}</h3>'
        role = f" needs the role <code>{escape(operation['x-role'])}</code>" if "x-role" in operation else ""
        yield f'<p class="request"><code>{escape(method)} {escape(path)}</code>{role}</p>'
        yield from (f"<p>{inline(paragraph)}</p>" for paragraph in operation["description"].split("\n\n"))
        if operation["parameters"]:
            yield from self._table("Parameters", [self._parameter(each) for each in operation["parameters"]])
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            yield f"<p>Body, <code>{escape(media)}</code>: {self._wording.kind(content['schema'])}</p>"
        yield f"<pre><code>{escape(curl(method, path, operation))}</code></pre>"
        yield from self._answers(operation)
        yield "</article>"

    def _parameter(self, parameter: Mapping[str, Any]) -> tuple[str, str, str, str]:
        schema = {**parameter["schema"], "description": parameter.get("description", "")}
        return self._row(parameter["name"], schema, f"{parameter['in']}, required" * parameter["required"])

    def _answers(self, operation: Mapping[str, Any]) -> Iterator[str]:
        yield '<dl class="answers">'
        for status, response in operation["responses"].items():
            if "$ref" in response:
                continue
            kinds = [
                f"{self._wording.content(content)}, <code>{escape(media)}</code>"
                for media, content in response.get("content", {}).items()
            ]
            yield f"<dt>{escape(status)} {escape(response['description'])}</dt>"
            yield f"<dd>{'; '.join(kinds) or 'no body'}</dd>"
            for content in response.get("content", {}).values():
                if "example" in content:
                    shown = json.dumps(content["example"], indent=2, ensure_ascii=False)
                    yield f"<dd><pre><code>{escape(shown)}</code></pre></dd>"
        links = [f'<a href="#{escape(kind)}">{escape(kind)}</a>' for kind in operation["x-problems"]]
        yield f"<dt>Problems</dt>\n<dd>{', '.join(links)}</dd>\n</dl>"

    def _problems(self) -> Iterator[str]:
        yield '<section>\n<h2 id="problems">Problems</h2>'
        link = self._wording.kind({"$ref": f"{REFERENCE}Problem"})
        yield f"<p>The type of a problem is the address of its explanation here. Its document: {link}.</p>"
        for kind, (status, title) in KINDS.items():
            yield f'<article id="{escape(kind)}">\n<h3>{escape(title)}</h3>'
            yield f'<p class="request"><code>{status} {escape(_phrase(status))}</code> <code>{escape(kind)}</code></p>'
            yield f"<p>{inline(EXPLAINED[kind])}</p>\n</article>"
        yield "</section>"

    def _shape_sections(self) -> Iterator[str]:
        yield '<section>\n<h2 id="shapes">Shapes</h2>'
        for name, schema in self._shapes.items():
            yield f'<article id="shape-{escape(name)}">\n<h3>{escape(name)}</h3>'
            yield f"<p>{inline(schema.get('description', ''))}</p>"
            if "enum" in schema:
                yield f"<p>{self._wording.kind(schema)}</p>"
            required = schema.get("required", ())
            rows = [self._row(each, its, "required" * (each in required)) for each, its in fields(schema).items()]
            if rows:
                yield from self._table("Fields", rows)
            yield "</article>"
        yield "</section>"

    def _row(self, name: str, schema: Schema, need: str) -> tuple[str, str, str, str]:
        default = self._wording.default(schema)
        about = inline(schema.get("description", ""))
        limits = self._wording.limits(schema)
        about = " ".join(each for each in (about, f"({limits})" if limits else "") if each)
        return f"<code>{escape(name)}</code>", self._wording.kind(schema), need or default, about

    def _table(self, caption: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
        yield f"<table>\n<caption>{escape(caption)}</caption>"
        yield "<thead><tr><th>Name</th><th>Type</th><th>Default</th><th>Meaning</th></tr></thead>\n<tbody>"
        for row in rows:
            yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
        yield "</tbody>\n</table>"


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
