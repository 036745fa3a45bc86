"""`spec` of a TrainingJob: the wish, with every default that does not depend on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from edl.api.base import MAX_INT32, MAX_SAFE, Label, Part, Rule, Seconds, Whole, keyed, unique_by
from edl.api.roles import EventPolicies, MasterSpec, Passes, Positive, PserverSpec, TrainerSpec
from edl.api.template import LocalReference, Volume, VolumeMount

MAX_NAME_LENGTH = 50
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_PORTS = 128
MAX_PORT = 65535

_PortCount = Annotated[int, Field(ge=1, le=MAX_PORTS)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Volumes = Annotated[list[Volume], AfterValidator(unique_by("name"))]


class LedgerLoss(StrEnum):
    """What happens when the journal is empty although the status shows progress."""

    FAIL = "Fail"
    RESTART_EPOCH = "RestartEpoch"


class Dataset(Part):
    """What the master shards."""

    source: Annotated[str, Field(max_length=4096, pattern=r"^(index:[0-9]{1,18}|(lines|parquet):.+)$")]
    """index:N, lines:GLOB or parquet:GLOB."""
    epochs: Passes | None = None
    """How often it is read; by default spec.passes."""
    seed: Annotated[Whole, Field(ge=0, le=MAX_SAFE)] | None = None
    """Decides the order."""
    shard_size: Annotated[Whole, Field(ge=1, le=MAX_SAFE)] | None = None
    """Most positions of one lease."""
    max_quarantined_fraction: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """The job fails once more than this part cannot be read."""
    on_ledger_lost: Annotated[LedgerLoss, Field(strict=False)] | None = None
    """What a lost journal means: Fail or RestartEpoch; unset: Fail, unless the controller took the job down."""


class Throughput(Part):
    """One measured point: so many trainers process so many samples per second."""

    instances: Positive
    """Number of trainers."""
    samples_per_second: _Number
    """What they process together."""


class Elasticity(Part):
    """How readily the job is resized."""

    cooldown_seconds: Seconds = 60
    """Least time between two resizes of our own accord."""
    resize_cost_seconds: _Number | None = None
    """Time that a resize costs; measured where it is absent."""
    throughput: Annotated[list[Throughput], AfterValidator(unique_by("instances"))] = keyed("instances", limit=64)
    """Speed by number of trainers; measured where it is absent."""


def _check_elastic(spec: Spec) -> Iterator[str]:
    low, high = spec.trainer.min_instance, spec.trainer.max_instance
    if low < high and not spec.fault_tolerant:
        yield (
            f"min-instance {low} is below max-instance {high}, but fault_tolerant is false; "
            "set fault_tolerant: true, or make them equal"
        )


def _check_mount_spellings(spec: Spec) -> Iterator[str]:
    if {"old_volume_mounts", "volume_mounts"} <= spec.model_fields_set:
        yield "VolumeMounts and volumeMounts are two spellings of one field; keep one of them"


def _check_network_spellings(spec: Spec) -> Iterator[str]:
    if {"old_host_network", "host_network"} <= spec.model_fields_set:
        yield "hostNetwork and host_network are two spellings of one field; keep one of them"


def _check_passes(spec: Spec) -> Iterator[str]:
    inner, outer = spec.trainer.passes, spec.passes
    if inner is not None and outer is not None and inner != outer:
        yield f"passes {outer} differs from trainer.passes {inner}; keep one of them"


def _check_ports(spec: Spec) -> Iterator[str]:
    last = spec.ports[-1]
    if last > MAX_PORT:
        yield f"port {spec.port} with {len(spec.ports)} ports ends at {last}, beyond {MAX_PORT}; lower port"


class Spec(Part):
    """What a user asks for."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] = "paddlepaddle/paddlecloud-job"
    """The image of every role but the master."""
    port: Annotated[int, Field(ge=1, le=MAX_PORT)] = 7164
    """The first port of a pserver."""
    ports_num: _PortCount = Field(default=1, alias="ports_num")
    """Number of ports for dense parameters."""
    ports_num_for_sparse: _PortCount = Field(default=1, alias="ports_num_for_sparse")
    """Number of ports for sparse parameters."""
    fault_tolerant: bool = Field(default=False, alias="fault_tolerant")
    """False restarts the whole job when a pod is lost; true goes on, and is needed to be elastic."""
    passes: Passes | None = None
    """Epochs over the data set; 1 where it is absent."""
    volumes: _Volumes = keyed("name", limit=64)
    """Volumes of every pod."""
    old_volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64, alias="VolumeMounts")
    """The old spelling of volumeMounts."""
    volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64)
    """Where the container of every role sees the volumes."""
    image_pull_secrets: list[LocalReference] = Field(default_factory=list, max_length=16)
    """Secrets for pulling the images."""
    host_network: bool | None = None
    """Whether pods share their node's network."""
    old_host_network: bool | None = Field(default=None, alias="host_network")
    """The old spelling of hostNetwork."""
    master: MasterSpec = Field(default_factory=MasterSpec)
    """The data master."""
    pserver: PserverSpec = Field(default_factory=PserverSpec)
    """The parameter servers."""
    trainer: TrainerSpec
    """The trainers."""
    suspend: bool = False
    """No pods while true."""
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 0
    """The tier: higher ones are admitted first."""
    queue: Annotated[Label, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "default"
    """Whose quota and share the job counts to."""
    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """The scheduler of the pods."""
    gang: bool | None = None
    """Whether the minimum set is scheduled as a Volcano PodGroup; with Volcano's scheduler it is."""
    policies: EventPolicies = keyed("event", limit=16)
    """Answers to events; what they leave out follows from fault_tolerant."""
    backoff_limit: Annotated[Whole, Field(ge=0, le=MAX_INT32)] = 6
    """How many failures of pods end the job; preemption and scaling down never count."""
    active_deadline_seconds: Seconds | None = None
    """Longest time that the job may run."""
    ttl_seconds_after_finished: Seconds | None = None
    """Time after which a finished job is deleted."""
    elasticity: Elasticity = Field(default_factory=Elasticity)
    """How readily the job is resized."""
    dataset: Dataset | None = None
    """What the master shards; without it the training code may say so."""

    rules = (
        Rule(
            cel="self.trainer.min__dash__instance >= self.trainer.max__dash__instance || "
            "(has(self.fault_tolerant) && self.fault_tolerant)",
            message="an elastic job (min-instance below max-instance) needs fault_tolerant: true",
            check=_check_elastic,
        ),
        Rule(
            cel="!(has(self.VolumeMounts) && has(self.volumeMounts))",
            message="VolumeMounts and volumeMounts are two spellings of one field; keep one of them",
            check=_check_mount_spellings,
        ),
        Rule(
            cel="!(has(self.hostNetwork) && has(self.host_network))",
            message="hostNetwork and host_network are two spellings of one field; keep one of them",
            check=_check_network_spellings,
        ),
        Rule(
            cel="!has(self.passes) || !has(self.trainer.passes) || self.passes == self.trainer.passes",
            message="passes and trainer.passes differ; keep one of them",
            check=_check_passes,
        ),
        Rule(
            cel=f"self.port + self.ports_num + self.ports_num_for_sparse - 1 <= {MAX_PORT}",
            message=f"the last port of the job is beyond {MAX_PORT}; lower port",
            check=_check_ports,
        ),
    )

    @property
    def ports(self) -> range:
        """The ports of a pserver and of a trainer."""
        return range(self.port, self.port + self.ports_num + self.ports_num_for_sparse)
