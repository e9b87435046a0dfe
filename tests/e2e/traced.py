"""An app that traces, and leaves its spans in a file: the server and the worker of the test of traces load it."""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fairlead import Fairlead, current_task
from fairlead.cli import main

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

app = Fairlead()


@app.task
async def flaky() -> str:
    with trace.get_tracer("application").start_as_current_span("inside"):
        if current_task().attempt == 1:
            raise ValueError("the first time never works")
        return "done"


@app.task(isolate=True)
def apart() -> str:
    """The span that is the current one in a process of its own."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"


@app.task
def in_thread() -> str:
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"


def shown(span: ReadableSpan) -> dict[str, object]:
    assert span.context is not None
    return {
        "name": span.name,
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "events": [event.name for event in span.events],
        "told": [dict(event.attributes or {}) for event in span.events],
        "described": span.status.description,
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
    }


def run() -> None:
    """The command line, leaving its spans behind."""
    atexit.register(_write, Path(os.environ["SPANS"]))
    main()


def _write(file: Path) -> None:
    file.write_text(json.dumps([shown(span) for span in exporter.get_finished_spans()]))
