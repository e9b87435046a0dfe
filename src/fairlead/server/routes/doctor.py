"""Whether all is as it should be."""

from __future__ import annotations

from fairlead.server.endpoint import Answer, Call, Empty, Endpoint
from fairlead.server.principal import Role
from fairlead.server.queues import check_everybodys
from fairlead.wire.doctor import DiagnosisShown, diagnosis_shown


async def diagnose(call: Call[Empty, None]) -> Answer:
    """Look at the store, its durability, clocks, versions, limits and what was left behind; say what to do about it.

    It changes nothing, and costs about the same however many tasks there are. The answer is 200 whatever was found.
    """
    check_everybodys(call)
    return Answer(diagnosis_shown(await call.hub.engine.diagnose()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/doctor",
        handler=diagnose,
        summary="Examine the store and what runs on it",
        role=Role.ADMIN,
        answers={200: DiagnosisShown},
    ),
)
