"""`spec` of a TrainingJob, with every default that does not depend on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from math import lcm
from typing import Annotated

from pydantic import AfterValidator, Field

from edl.api.base import (
    MAX_INT32,
    MAX_SAFE,
    Label,
    Part,
    Rule,
    Seconds,
    Values,
    WholeNumber,
    keyed_list,
    unique_by,
)
from edl.api.roles import (
    HAS_REQUESTS,
    EventPolicies,
    MasterSpec,
    Passes,
    Positive,
    PserverSpec,
    TrainerSpec,
)
from edl.api.template import LocalReference, Volume, VolumeMount
from edl.api.topology import TopologySpec
from edl.model.lending import Lending
from edl.model.node_groups import ScaleUp
from edl.model.sizes import Sizes, in_steps

MAX_NAME_LENGTH = 50
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_PORTS = 128
MAX_PORT = 65535

_PortCount = Annotated[int, Field(ge=1, le=MAX_PORTS)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Volumes = Annotated[list[Volume], AfterValidator(unique_by("name"))]


class LedgerLoss(StrEnum):
    """What the job does if the master's journal is empty although the status shows progress."""

    FAIL = "Fail"
    RESTART_EPOCH = "RestartEpoch"


class Dataset(Part):
    """The data set that the master divides into shards."""

    source: Annotated[str, Field(max_length=4096, pattern=r"^(index:[0-9]{1,18}|(lines|parquet|tar|mix):.+)$")]
    """Source of the records: index:N, lines:GLOB, parquet:GLOB, tar:GLOB, or mix:RECORDS;WEIGHT SOURCE;..."""
    epochs: Passes | None = None
    """Number of epochs; by default spec.passes."""
    seed: Annotated[WholeNumber, Field(ge=0, le=MAX_SAFE)] | None = None
    """Seed of the order in which the records are read."""
    shard_size: Annotated[WholeNumber, Field(ge=1, le=MAX_SAFE)] | None = None
    """Maximum number of positions in one lease."""
    max_quarantined_fraction: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """Fraction of the records that trainers may fail on; beyond it the job fails."""
    on_ledger_lost: Annotated[LedgerLoss, Field(strict=False)] | None = None
    """Action if the journal is lost: Fail or RestartEpoch; by default Fail, unless edl itself stopped the job."""


class Throughput(Part):
    """The speed of one number of trainers."""

    instances: Positive
    """Number of trainers."""
    samples_per_second: _Number
    """Samples per second that they process together."""


def _check_deterministic(elasticity: Elasticity) -> Iterator[Values]:
    if elasticity.deterministic and elasticity.global_batch is None:
        yield {}


def _check_deterministic_batch(elasticity: Elasticity) -> Iterator[Values]:
    if elasticity.deterministic and elasticity.max_global_batch is not None:
        yield {}


def _check_batches(elasticity: Elasticity) -> Iterator[Values]:
    low, high = elasticity.global_batch, elasticity.max_global_batch
    if high is not None and (low is None or high < low):
        yield {"high": high}


class Elasticity(Part):
    """When and at what cost edl resizes the job."""

    cooldown_seconds: Seconds = 60
    """Minimum time between two shrinks for the benefit of other jobs."""
    resize_cost_seconds: _Number | None = None
    """Training time that one resize costs; measured if it is not set."""
    throughput: Annotated[list[Throughput], AfterValidator(unique_by("instances"))] = keyed_list(
        "instances", limit=64
    )
    """Speed by number of trainers; measured if it is not set."""
    global_batch: Annotated[WholeNumber, Field(ge=1, le=MAX_INT32)] | None = None
    """Records of an optimizer step of trainers that train in step, whatever their number."""
    max_global_batch: Annotated[WholeNumber, Field(ge=1, le=MAX_INT32)] | None = None
    """The job may choose steps of globalBatch, for which its learning rate was chosen, to so many records."""
    deterministic: bool = False
    """Whether the weights of such trainers must not depend on their number."""
    lending: Annotated[Lending, Field(strict=False)] = Lending.SURPLUS
    """Which trainers may lend CPU to serving: those above the minimum, none, or all."""
    scale_up: Annotated[ScaleUp, Field(strict=False)] = ScaleUp.NEVER
    """For what the job may ask an autoscaler for nodes: for nothing, its minimum, or all up to its maximum."""

    rules = (
        Rule(
            cel="!has(self.deterministic) || !self.deterministic || has(self.globalBatch)",
            message="deterministic is true, but globalBatch is not set; set globalBatch",
            check=_check_deterministic,
        ),
        Rule(
            cel="!has(self.maxGlobalBatch) || (has(self.globalBatch) && self.globalBatch <= self.maxGlobalBatch)",
            message="maxGlobalBatch {high} is below globalBatch, or that is not set; set globalBatch to the batch for"
            " which the learning rate was chosen, and maxGlobalBatch to no less",
            check=_check_batches,
        ),
        Rule(
            cel="!has(self.maxGlobalBatch) || !has(self.deterministic) || !self.deterministic",
            message="deterministic is true, and with maxGlobalBatch the weights depend on the number of trainers;"
            " remove one of the two",
            check=_check_deterministic_batch,
        ),
    )


_NO_SLICE = "!has(self.topology) || !has(self.topology.slice)"


def _slice_size(spec: Spec) -> int:
    """The trainers of a slice; 1 if each is of use alone."""
    return spec.topology.slice.size if spec.topology and spec.topology.slice else 1


def _check_slices(spec: Spec) -> Iterator[Values]:
    size, trainer = _slice_size(spec), spec.trainer
    counts = (*trainer.bounds, *trainer.sizes, trainer.instances)
    if (part := next((count for count in counts if count % size), None)) is not None:
        yield {"count": f" {part}", "size": size}


def _check_requests_of_slices(spec: Spec) -> Iterator[Values]:
    resources = spec.trainer.resources
    if _slice_size(spec) > 1 and not (resources and resources.has_cpu_or_memory):
        yield {}


def _check_elastic(spec: Spec) -> Iterator[Values]:
    low, high = spec.trainer.bounds
    if low < high and not spec.fault_tolerant:
        yield {"min": low, "max": high}


def _one_spelling(old: str, new: str, fields: set[str]) -> Rule:
    """The rule that a field is set under one of its two names."""

    def check(spec: Spec) -> Iterator[Values]:
        if fields <= spec.model_fields_set:
            yield {}

    return Rule(
        cel=f"!(has(self.{old}) && has(self.{new}))",
        message=f"{old} and {new} are two spellings of one field; remove {old}, the old one",
        check=check,
    )


def _check_passes(spec: Spec) -> Iterator[Values]:
    inner, outer = spec.trainer.passes, spec.passes
    if inner is not None and outer is not None and inner != outer:
        yield {"outer": outer, "inner": inner}


def _check_ports(spec: Spec) -> Iterator[Values]:
    if spec.ports[-1] > MAX_PORT:
        yield {"last": spec.ports[-1]}


class Spec(Part):
    """The job as the user specifies it."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] = "paddlepaddle/paddlecloud-job"
    """Image of every role except the master."""
    port: Annotated[int, Field(ge=1, le=MAX_PORT)] = 7164
    """First port of a pserver."""
    ports_num: _PortCount = Field(default=1, alias="ports_num")
    """Number of ports for dense parameters."""
    ports_num_for_sparse: _PortCount = Field(default=1, alias="ports_num_for_sparse")
    """Number of ports for sparse parameters."""
    fault_tolerant: bool = Field(default=False, alias="fault_tolerant")
    """If a pod is lost: false restarts the whole job, true replaces the pod; an elastic job needs true."""
    passes: Passes | None = None
    """Number of epochs over the data set; by default 1."""
    volumes: _Volumes = keyed_list("name", limit=64)
    """Volumes of every pod."""
    old_volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64, alias="VolumeMounts")
    """Old spelling of volumeMounts."""
    volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64)
    """Volume mounts of the container of every role."""
    image_pull_secrets: list[LocalReference] = Field(default_factory=list, max_length=16)
    """Secrets to pull the images with."""
    host_network: bool | None = None
    """Whether pods use the network of their node."""
    old_host_network: bool | None = Field(default=None, alias="host_network")
    """Old spelling of hostNetwork."""
    master: MasterSpec = Field(default_factory=MasterSpec)
    """The data master."""
    pserver: PserverSpec = Field(default_factory=PserverSpec)
    """The parameter servers."""
    trainer: TrainerSpec
    """The trainers."""
    suspend: bool = False
    """While true, the job has no pods."""
    priority: Annotated[WholeNumber, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Tier of the job; jobs of a higher tier are admitted first."""
    queue: Annotated[Label, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "default"
    """Queue whose quota the job uses."""
    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Scheduler of the pods."""
    gang: bool | None = None
    """Whether the minimum set of pods starts whole or not at all; by default only with schedulerName volcano."""
    policies: EventPolicies = keyed_list("event", limit=16)
    """Actions for events of all roles; fault_tolerant decides for the other events."""
    backoff_limit: Annotated[WholeNumber, Field(ge=0, le=MAX_INT32)] = 6
    """Number of tolerated pod failures; one more fails the job. Preemption and scaling down do not count."""
    active_deadline_seconds: Seconds | None = None
    """Maximum run time; after it the job fails."""
    ttl_seconds_after_finished: Seconds | None = None
    """Time after which edl deletes a finished job."""
    elasticity: Elasticity = Field(default_factory=Elasticity)
    """When and at what cost edl resizes the job."""
    dataset: Dataset | None = None
    """Data set that the master divides into shards; the training code can declare it instead."""
    topology: TopologySpec | None = None
    """Keeps trainers and pservers together in one rack, NVLink domain or another group of nodes."""

    rules = (
        Rule(
            cel="self.trainer.min__dash__instance >= self.trainer.max__dash__instance || "
            "(has(self.fault_tolerant) && self.fault_tolerant)",
            message="min-instance {min} is below max-instance {max}, but fault_tolerant is false; set "
            "fault_tolerant: true, or make min-instance and max-instance equal",
            check=_check_elastic,
        ),
        _one_spelling("VolumeMounts", "volumeMounts", {"old_volume_mounts", "volume_mounts"}),
        _one_spelling("host_network", "hostNetwork", {"old_host_network", "host_network"}),
        Rule(
            cel="!has(self.passes) || !has(self.trainer.passes) || self.passes == self.trainer.passes",
            message="passes {outer} differs from trainer.passes {inner}; remove one of them",
            check=_check_passes,
        ),
        Rule(
            cel=f"self.port + self.ports_num + self.ports_num_for_sparse - 1 <= {MAX_PORT}",
            message=f"the last port {{last}} is above {MAX_PORT}; lower port, ports_num or ports_num_for_sparse",
            check=_check_ports,
        ),
        Rule(
            cel=f"{_NO_SLICE} || ("
            "self.trainer.min__dash__instance % self.topology.slice.size == 0 && "
            "self.trainer.max__dash__instance % self.topology.slice.size == 0 && "
            "(!has(self.trainer.instances) || self.trainer.instances % self.topology.slice.size == 0) && "
            "(!has(self.trainer.sizes) || self.trainer.sizes.all(n, n % self.topology.slice.size == 0)))",
            message="a number of trainers{count} is no multiple of topology.slice.size {size}; make min-instance,"
            " max-instance, instances and sizes multiples of it",
            check=_check_slices,
        ),
        Rule(
            cel=f"{_NO_SLICE} || (has(self.trainer.resources) && ({HAS_REQUESTS.replace('self.', 'self.trainer.')}))",
            message="the trainers request neither cpu nor memory, so edl cannot keep slices whole; set"
            " spec.trainer.resources, or remove topology.slice",
            check=_check_requests_of_slices,
        ),
    )

    @property
    def sizes(self) -> Sizes:
        """The numbers of trainers that the job may have, in whole slices; empty for every one."""
        if self.trainer.sizes:
            return self.trainer.allowed
        return in_steps(*self.trainer.bounds, lcm(self.trainer.step, _slice_size(self)))

    @property
    def ports(self) -> range:
        """The ports of a pserver and of a trainer."""
        return range(self.port, self.port + self.ports_num + self.ports_num_for_sparse)
