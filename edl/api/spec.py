"""`spec` of a TrainingJob: the wish, with every default that does not depend on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from edl.api.parts import MAX_INT32, MAX_INT64, Label, Part, Rule, Seconds, Whole, keyed, unique_by
from edl.api.roles import MasterSpec, Passes, Policies, Positive, PserverSpec, TrainerSpec
from edl.api.template import RESERVED_VOLUMES, TOKEN_DIRECTORY, LocalReference, Volume, VolumeMount

MAX_NAME_LENGTH = 50
MAX_PORTS = 128
MAX_PORT = 65535

_PortCount = Annotated[Whole, Field(ge=1, le=MAX_PORTS)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Volumes = Annotated[list[Volume], AfterValidator(unique_by("name"))]


class LedgerLoss(StrEnum):
    """What happens when the journal is empty although the status shows progress."""

    FAIL = "Fail"
    RESTART_EPOCH = "RestartEpoch"


class Dataset(Part):
    """What the master shards."""

    source: Annotated[str, Field(max_length=4096, pattern=r"^(index:[0-9]{1,18}|(lines|parquet):.+)$")]
    epochs: Passes | None = None
    seed: Annotated[Whole, Field(ge=0, le=MAX_INT64)] | None = None
    shard_size: Annotated[Whole, Field(ge=1, le=MAX_INT64)] | None = None
    max_quarantined_fraction: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    on_ledger_lost: Annotated[LedgerLoss, Field(strict=False)] = LedgerLoss.FAIL


class Throughput(Part):
    """One measured point: so many trainers process so many samples per second."""

    instances: Positive
    samples_per_second: _Number


class Elasticity(Part):
    """How readily the job is resized."""

    cooldown_seconds: Seconds = 60
    resize_cost_seconds: _Number | None = None
    throughput: Annotated[list[Throughput], AfterValidator(unique_by("instances"))] = keyed("instances", limit=64)


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


def _check_volumes(spec: Spec) -> Iterator[str]:
    for volume in spec.volumes:
        if volume.name in RESERVED_VOLUMES:
            yield f"volume {volume.name} has a name of the controller's; rename it"
    for mount in (*spec.old_volume_mounts, *spec.volume_mounts):
        if mount.name in RESERVED_VOLUMES or mount.mount_path.startswith(TOKEN_DIRECTORY):
            yield f"mount of {mount.name} at {mount.mount_path[:60]} belongs to the controller; remove it"


_FREE_MOUNT = f"!(m.name in {list(RESERVED_VOLUMES)}) && !m.mountPath.startsWith('{TOKEN_DIRECTORY}')"


class Spec(Part):
    """What a user asks for."""

    image: Annotated[str, Field(min_length=1, max_length=1024)] = "paddlepaddle/paddlecloud-job"
    port: Annotated[Whole, Field(ge=1, le=MAX_PORT)] = 7164
    ports_num: _PortCount = Field(default=1, alias="ports_num")
    ports_num_for_sparse: _PortCount = Field(default=1, alias="ports_num_for_sparse")
    fault_tolerant: bool = Field(default=False, alias="fault_tolerant")
    passes: Passes | None = None
    volumes: _Volumes = keyed("name", limit=64)
    old_volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64, alias="VolumeMounts")
    volume_mounts: list[VolumeMount] = Field(default_factory=list, max_length=64)
    image_pull_secrets: list[LocalReference] = Field(default_factory=list, max_length=16)
    host_network: bool = False
    old_host_network: bool = Field(default=False, alias="host_network")
    master: MasterSpec = Field(default_factory=MasterSpec)
    pserver: PserverSpec = Field(default_factory=PserverSpec)
    trainer: TrainerSpec
    suspend: bool = False
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 0
    queue: Annotated[Label, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")] = "default"
    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    gang: bool | None = None
    policies: Policies = keyed("event", limit=16)
    backoff_limit: Annotated[Whole, Field(ge=0, le=MAX_INT32)] = 6
    active_deadline_seconds: Seconds | None = None
    ttl_seconds_after_finished: Seconds | None = None
    elasticity: Elasticity = Field(default_factory=Elasticity)
    dataset: Dataset | None = None

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
        Rule(
            cel=f"(!has(self.volumes) || self.volumes.all(v, !(v.name in {list(RESERVED_VOLUMES)}))) && "
            f"(!has(self.VolumeMounts) || self.VolumeMounts.all(m, {_FREE_MOUNT})) && "
            f"(!has(self.volumeMounts) || self.volumeMounts.all(m, {_FREE_MOUNT}))",
            message=f"the volumes {', '.join(RESERVED_VOLUMES)} belong to the controller",
            check=_check_volumes,
        ),
    )

    @property
    def ports(self) -> range:
        """The ports of a pserver and of a trainer."""
        return range(self.port, self.port + self.ports_num + self.ports_num_for_sparse)
