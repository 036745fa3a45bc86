"""`status` of a TrainingJob as the CRD describes it; the controller computes it anew, whoever may have written it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from edl.api.base import MAX_INT32, MAX_SAFE, Part, Whole, keyed, unique_by
from edl.model.status import JobPhase

MAX_SPEEDS = 64

_Count = Annotated[Whole, Field(ge=0, le=MAX_INT32)]
_Generation = Annotated[Whole, Field(ge=0, le=MAX_SAFE)]
_Time = Annotated[AwareDatetime, Field(strict=False)]
_Reason = Annotated[str, Field(max_length=1024)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Sentence = Annotated[str, Field(max_length=32768)]


class ConditionStatus(Part):
    """One aspect of the state, as metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: _Reason
    message: _Sentence
    last_transition_time: _Time
    observed_generation: _Generation | None = None


class RoleStatus(Part):
    """How many pods of a role are wanted, ready, and there but not ready."""

    desired: _Count | None = None
    """How many the controller wants."""
    ready: _Count | None = None
    """How many are ready."""
    pending: _Count | None = None
    """How many are there but not ready."""


class ResizeStatus(Part):
    """The last change of the trainer count."""

    time: _Time | None = None
    from_count: _Count | None = Field(default=None, alias="from")
    to_count: _Count | None = Field(default=None, alias="to")
    reason: _Reason | None = None
    voluntary_time: _Time | None = None
    """When trainers last died for the share of another job; the cooldown counts from it."""
    seconds: _Number | None = None
    """What it cost: time of training at the speed after it, measured."""


class DatasetStatus(Part):
    """How far the data set has been consumed: positions of the present epoch."""

    epoch: _Generation | None = None
    done: _Generation | None = None
    total: _Generation | None = None
    model: _Reason | None = None
    """Which pservers hold the model that goes with these accounts; `lost` where they have to go back with it."""


class SpeedStatus(Part):
    """The measured speed of a number of trainers."""

    instances: _Count
    """How many trainers."""
    samples_per_second: _Number
    """What they process together."""
    seconds: _Number
    """How many seconds of measuring stand behind it; what is old counts less."""


class Status(Part):
    """What the controller last saw and decided."""

    phase: Annotated[JobPhase, Field(strict=False)] | None = None
    """Pending, Creating, Running, Scaling, Suspended, Succeeded or Failed."""
    reason: _Reason | None = None
    """Why the job has this count, in one word."""
    selector: _Reason | None = None
    """Label selector of the trainers."""
    observed_generation: _Generation | None = None
    """The version of the spec that this status answers."""
    conditions: Annotated[list[ConditionStatus], AfterValidator(unique_by("type"))] = keyed("type", limit=32)
    trainer: RoleStatus | None = None
    pserver: RoleStatus | None = None
    master: RoleStatus | None = None
    start_time: _Time | None = None
    """When the job was first admitted."""
    completion_time: _Time | None = None
    """When it ended."""
    last_resize: ResizeStatus | None = None
    """The last change of the trainer count."""
    dataset: DatasetStatus | None = None
    """How far the data set has been consumed."""
    failures: _Count | None = None
    """Failures counted so far."""
    throughput: Annotated[list[SpeedStatus], AfterValidator(unique_by("instances"))] = keyed(
        "instances", limit=MAX_SPEEDS
    )
    """Measured speed by number of trainers; the planner uses it where spec.elasticity says nothing."""
    resize_seconds: _Number | None = None
    """What a change of the trainer count cost lately, measured; used where spec.elasticity says nothing."""
    explanation: _Sentence | None = None
    """Why the job has this count, in one sentence."""
