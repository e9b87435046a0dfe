"""The doctor over HTTP: the shape of a diagnosis, and its endpoint."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from fairlead.core.health.diagnosis import Diagnosis, Finding, Level, Tier
from fairlead.core.tenancy import Role
from fairlead.wire.endpoint import Empty, Endpoint


class TierShown(Struct, frozen=True, kw_only=True):
    """What an acknowledged task survives."""

    name: str
    kill: str
    """Whether it survives a kill -9 of any process, the store's own included."""
    power: str
    """Whether it survives a power loss."""
    lost_with: str
    """What it does not survive."""


class FindingShown(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    what: str
    level: Level
    """`green`: as it should be; `yellow`: worth a look; `red`: tasks may be lost, or do not move."""
    value: str
    """What was found."""
    remedy: str
    """What to do about it; empty when nothing need be done."""


class DiagnosisShown(Struct, frozen=True, kw_only=True):
    """The results of all checks."""

    level: Level
    """The worst of the findings."""
    tier: TierShown | None
    """The durability tier of the store; null if it could not be reached."""
    findings: list[FindingShown]


def diagnosis_shown(diagnosis: Diagnosis) -> DiagnosisShown:
    """A diagnosis, as it is shown."""
    tier = diagnosis.tier
    return DiagnosisShown(
        level=diagnosis.level,
        tier=None
        if tier is None
        else TierShown(name=tier.name, kill=tier.kill, power=tier.power, lost_with=tier.lost_with),
        findings=[
            FindingShown(what=each.what, level=each.level, value=each.value, remedy=each.remedy)
            for each in diagnosis.findings
        ],
    )


def diagnosis_of(shown: DiagnosisShown) -> Diagnosis:
    """A diagnosis that was shown."""
    tier = shown.tier
    return Diagnosis(
        tier=None if tier is None else Tier(name=tier.name, kill=tier.kill, power=tier.power, lost_with=tier.lost_with),
        findings=tuple(
            Finding(what=each.what, level=each.level, value=each.value, remedy=each.remedy) for each in shown.findings
        ),
    )


DIAGNOSE: Final = Endpoint[Empty, None](
    method="GET",
    path="/api/v1/doctor",
    patient=True,
    summary="Check the store and what runs on it",
    role=Role.ADMIN,
    answers={200: DiagnosisShown},
)
