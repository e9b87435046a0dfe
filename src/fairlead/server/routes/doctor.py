"""Checks of the store and of what runs on it."""

from __future__ import annotations

from fairlead.admin.doctor import api
from fairlead.admin.doctor.api import diagnosis_shown
from fairlead.server.endpoint import Answer, Call, serve
from fairlead.wire.endpoint import Empty


async def diagnose(call: Call[Empty, None]) -> Answer:
    """Check the store's durability, clocks, versions, limits and leftovers, and say how to fix each problem.

    It changes nothing, and costs about the same however many tasks there are. The answer is 200 whatever was found.
    """
    return Answer(diagnosis_shown(await call.state.engine.diagnose()))


ENDPOINTS = (serve(api.DIAGNOSE, diagnose),)
