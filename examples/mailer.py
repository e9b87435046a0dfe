"""A worker that sends mail and reports to Sentry what it could not send.

SENTRY_DSN=https://… fairlead worker mailer:app
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sentry_sdk

from fairlead import Depends, Fairlead, Reject, Sentry, TaskContext, current_task

sentry_sdk.init(dsn=os.environ.get("SENTRY_DSN"))


@dataclass
class Mail:
    to: str
    subject: str
    body: str = ""


@dataclass
class Outbox:
    """Where mail goes: a folder, which stands for the server that you have."""

    folder: Path

    def send(self, name: str, mail: Mail) -> Path:
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps({"to": mail.to, "subject": mail.subject, "body": mail.body}))
        return file


@asynccontextmanager
async def lifespan(app: Fairlead) -> AsyncIterator[Outbox]:
    yield Outbox(Path(os.environ.get("OUTBOX", ".")))


def outbox(context: TaskContext) -> Outbox:
    return context.state(Outbox)


app = Fairlead(lifespan=lifespan, middleware=[Sentry()])


@app.task(max_retries=3)
def send(mail: Mail, *, box: Outbox = Depends(outbox)) -> Path:
    if "@" not in mail.to:
        raise Reject(f"{mail.to} is no address")
    return box.send(current_task().id, mail)


@app.task(isolate=True, timeout=30)
def newsletter(addresses: list[str], *, box: Outbox = Depends(outbox)) -> int:
    """A process of its own: what it computes takes no time from the others."""
    for number, address in enumerate(addresses):
        box.send(f"newsletter-{number}", Mail(address, "News"))
    return len(addresses)


@app.cron("0 6 * * *", parameters={"mail": Mail("ada@example.org", "Good morning")})
@app.task
async def greet(mail: Mail) -> None:
    await send.submit(mail)
