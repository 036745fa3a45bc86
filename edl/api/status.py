"""`status` of a TrainingJob in the CRD; the controller computes it and overwrites what anybody else writes there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from edl.api.base import MAX_INT32, MAX_SAFE, Part, WholeNumber, keyed_list, unique_by
from edl.model.resources import QosClass
from edl.model.status import JobPhase

MAX_SPEEDS = 64
MAX_TROUBLES = 16

_Count = Annotated[WholeNumber, Field(ge=0, le=MAX_INT32)]
_Generation = Annotated[WholeNumber, Field(ge=0, le=MAX_SAFE)]
_Time = Annotated[AwareDatetime, Field(strict=False)]
_Reason = Annotated[str, Field(max_length=1024)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Sentence = Annotated[str, Field(max_length=32768)]


class ConditionStatus(Part):
    """One condition, as metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: _Reason
    message: _Sentence
    last_transition_time: _Time
    observed_generation: _Generation | None = None


class RoleStatus(Part):
    """Number of pods of a role."""

    desired: _Count | None = None
    """Desired number of pods."""
    ready: _Count | None = None
    """Pods that are ready."""
    pending: _Count | None = None
    """Pods that exist but are not ready."""


class LendingStatus(Part):
    """CPU that the trainers declare and do not request."""

    cpu: Annotated[str, Field(max_length=32)] | None = None
    """Amount of CPU."""
    slowed: _Count | None = None
    """Trainers that serving slows."""


class ResizeStatus(Part):
    """Last change of the trainer count."""

    time: _Time | None = None
    """Time of the change."""
    from_count: _Count | None = Field(default=None, alias="from")
    """Number of trainers before."""
    to_count: _Count | None = Field(default=None, alias="to")
    """Number of trainers after."""
    reason: _Reason | None = None
    """Reason of the change, in one word."""
    voluntary_time: _Time | None = None
    """Last time at which the job gave trainers to another job; the cooldown starts there."""
    seconds: _Number | None = None
    """Measured cost of the change, in seconds of training at the speed after it."""


class DatasetStatus(Part):
    """Progress through the data set, in positions of the current epoch."""

    epoch: _Generation | None = None
    """Current epoch, from 0."""
    done: _Generation | None = None
    """Positions of the epoch that are done."""
    total: _Generation | None = None
    """All positions of the epoch."""
    unsaved: _Generation | None = None
    """Positions that training would repeat if the model were lost now: those since the last checkpoint."""
    model: _Reason | None = None
    """Identifies the pservers that hold the model; `lost` if the model is lost and training must go back."""


class SpeedStatus(Part):
    """Measured speed of one number of trainers."""

    instances: _Count
    """Number of trainers."""
    samples_per_second: _Number
    """Samples per second that they process together."""
    seconds: _Number
    """Seconds of measurement behind the value; older seconds count less."""


class GoodputStatus(Part):
    """Goodput of one number of trainers."""

    instances: _Count
    """Number of trainers."""
    samples_per_second: _Number
    """Records of the base batch that would teach as much in a second."""
    global_batch: _Count | None = None
    """Records of a step that achieve this."""
    efficiency: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """What a record of such a step teaches compared with one of the base batch."""
    measured: bool | None = None
    """True if the job has had so many trainers; otherwise it predicts their goodput."""


class NodeTroubleStatus(Part):
    """A node on which a trainer of the job failed or hung."""

    node: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the node."""
    time: _Time
    """Last time at which that happened."""
    hung: bool | None = None
    """True if the last trainer hung; false if it failed."""
    waits: _Count | None = None
    """How often edl had avoided the node before."""
    confirmed: bool | None = None
    """True if trainers of the job did well on at least as many other nodes."""


class Status(Part):
    """Last observed state and last decision of the controller."""

    phase: Annotated[JobPhase, Field(strict=False)] | None = None
    """Phase: Pending, Creating, Running, Scaling, Suspended, Succeeded or Failed."""
    reason: _Reason | None = None
    """Reason for the current trainer count, in one word."""
    selector: _Reason | None = None
    """Label selector of the trainer pods."""
    observed_generation: _Generation | None = None
    """Generation of the spec that this status describes."""
    conditions: Annotated[list[ConditionStatus], AfterValidator(unique_by("type"))] = keyed_list("type", limit=32)
    trainer: RoleStatus | None = None
    pserver: RoleStatus | None = None
    master: RoleStatus | None = None
    start_time: _Time | None = None
    """Time at which the job was first admitted."""
    completion_time: _Time | None = None
    """Time at which the job ended."""
    last_resize: ResizeStatus | None = None
    """Last change of the trainer count."""
    qos_class: Annotated[QosClass, Field(strict=False)] | None = None
    """QoS class of the trainers: Guaranteed, Burstable or BestEffort."""
    lending: LendingStatus | None = None
    """CPU that the trainers lend to serving."""
    dataset: DatasetStatus | None = None
    """Progress through the data set."""
    failures: _Count | None = None
    """Pod failures so far; the job fails if they exceed spec.backoffLimit."""
    completed: _Reason | None = None
    """Indexes of the trainers of this run that exited with code 0, as in 0-3,7."""
    throughput: Annotated[list[SpeedStatus], AfterValidator(unique_by("instances"))] = keyed_list(
        "instances", limit=MAX_SPEEDS
    )
    """Measured speed by number of trainers; used unless spec.elasticity.throughput is set."""
    goodput: Annotated[list[GoodputStatus], AfterValidator(unique_by("instances"))] = keyed_list(
        "instances", limit=MAX_SPEEDS
    )
    """Goodput by number of trainers, with the best batch for each; of a job with spec.elasticity.maxGlobalBatch."""
    global_batch: _Count | None = None
    """Records of a step that the job has chosen; of a job with spec.elasticity.maxGlobalBatch."""
    resize_seconds: _Number | None = None
    """Measured cost of a resize, in training time; used unless spec.elasticity.resizeCostSeconds is set."""
    node_troubles: Annotated[list[NodeTroubleStatus], AfterValidator(unique_by("node"))] = keyed_list(
        "node", limit=MAX_TROUBLES
    )
    """Nodes on which trainers failed or hung, if the controller avoids such nodes (--avoid-nodes-after)."""
    lending_price: _Number | None = None
    """Measured speed that the job loses for each core that its slowed trainers lend: 1 is what a core trains."""
    explanation: _Sentence | None = None
    """Reason for the current trainer count, in one line; condition Admitted has the details."""
