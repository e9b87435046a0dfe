"""The closed sets of words in answers, by the names that they have in the OpenAPI document.

Only described, never checked: a later server may answer a word that this version does not know.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, TypeVar

from msgspec import Meta

from fairlead.core.circuit import CircuitState
from fairlead.core.task import Priority, Reason, State
from fairlead.core.tenancy import Role
from fairlead.engine.worker_records import WorkerState

T = TypeVar("T")

ENUM: Final = "enum"
"""Where a type names the enum whose words it has."""

STATE_WORDS: Final = {state: state.value for state in State}
REASON_WORDS: Final = {reason: reason.value for reason in Reason}
PRIORITY_WORDS: Final = tuple(priority.word for priority in Priority)
"""An enum takes its time to tell a word, and these are told of every task."""

StateName: TypeAlias = Annotated[str, Meta(extra={ENUM: State})]
PriorityName: TypeAlias = Annotated[str, Meta(extra={ENUM: Priority})]
WorkerStateName: TypeAlias = Annotated[str, Meta(extra={ENUM: WorkerState})]
CircuitStateName: TypeAlias = Annotated[str, Meta(extra={ENUM: CircuitState})]
RoleName: TypeAlias = Annotated[str, Meta(extra={ENUM: Role})]

ByState: TypeAlias = Annotated[
    dict[StateName, T], Meta(extra_json_schema={"required": [state.value for state in State]})
]
"""A value for every state."""
ByPriority: TypeAlias = Annotated[
    dict[PriorityName, T], Meta(extra_json_schema={"required": [priority.word for priority in Priority]})
]
"""A value for every priority."""
