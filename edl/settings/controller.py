"""The flags of `edl controller`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from edl.model.names import CONTROLLER_NAMESPACE
from edl.model.plan import SERVING_GRACE_S, UNTRIED_S, Limits
from edl.observability.logs import LogFormat
from edl.settings.flags import Flag
from edl.settings.shared import (
    Address,
    ClusterSettings,
    ConsolidationSettings,
    Namespace,
    OptionalPath,
    RunnablePolicySettings,
)

LogLevel = Literal["debug", "info", "warn", "error", "crit"]

_LEVEL_ALIASES = {"dbug": "debug", "warning": "warn", "eror": "error", "critical": "crit", "fatal": "crit"}


def _level_of(value: object) -> object:
    word = value.lower() if isinstance(value, str) else value
    return _LEVEL_ALIASES.get(word, word) if isinstance(word, str) else word


def _check_image(value: str) -> str:
    if any(c.isspace() for c in value):
        raise ValueError("it contains a space")
    return value


def _without_duplicates(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))


class ControllerSettings(RunnablePolicySettings, ConsolidationSettings, ClusterSettings):
    """The values of the flags of `edl controller`."""

    namespace: Annotated[
        Namespace,
        Flag(
            "Namespace of the controller's Lease; no job may be in it.",
            metavar="NS",
            remedy="give the name of a namespace, such as paddlecloud",
        ),
    ] = CONTROLLER_NAMESPACE
    watch_namespace: Annotated[
        tuple[Namespace, ...],
        AfterValidator(_without_duplicates),
        Flag(
            "Manage only the jobs of this namespace; repeat the flag for more.",
            metavar="NS",
            remedy="give the name of a namespace; repeat the flag for more",
            unset="all namespaces",
        ),
    ] = ()
    listen: Annotated[
        Address,
        Flag(
            "Address that serves /metrics, /healthz and /readyz; not used with --once.",
            metavar="HOST:PORT",
            remedy="give HOST:PORT, such as 0.0.0.0:8080",
        ),
    ] = "0.0.0.0:8080"
    log_level: Annotated[LogLevel, BeforeValidator(_level_of), Flag("Lowest level that is logged.")] = "info"
    log_format: Annotated[LogFormat, Flag("Format of the log on stderr.")] = "logfmt"
    interval_s: Annotated[
        float,
        Field(ge=0.1, le=3600, allow_inf_nan=False),
        Flag("Longest time between two rounds.", metavar="SECONDS", remedy="give seconds, such as 5"),
    ] = 5.0
    writes_at_once: Annotated[
        int,
        Field(ge=1, le=1000),
        Flag(
            "Most writes to the API server that may be under way at once; fewer if it is slow or too busy.",
            metavar="N",
            remedy="give a number of requests, such as 64",
        ),
    ] = 64
    key_file: Annotated[
        OptionalPath,
        Flag(
            "File with the key that signs the tokens of data masters; it is created if it does not exist.",
            metavar="FILE",
            remedy="give the path of a file",
            unset="$XDG_STATE_HOME/edl/key",
        ),
    ] = None
    master_image: Annotated[
        str,
        AfterValidator(_check_image),
        Flag(
            "Image of the data masters of jobs that set no spec.master.image.",
            metavar="IMAGE",
            remedy="give the name of an image without spaces",
            unset="the image of the controller",
        ),
    ] = ""
    serving_scheduler: Annotated[
        tuple[str, ...],
        AfterValidator(_without_duplicates),
        Flag(
            "Keep room for waiting pods of this scheduler only; repeat the flag for more.",
            metavar="NAME",
            remedy="give a schedulerName, such as default-scheduler",
            unset="every scheduler that tries its pods",
        ),
    ] = ()
    lend_by_resize: Annotated[
        bool,
        Flag(
            "Trainers that run already lend CPU too: their requests are changed in place, without a restart, if API"
            " server and kubelets can do so."
        ),
    ] = False
    max_grace_s: Annotated[
        int,
        Field(ge=1, le=86_400),
        Flag(
            "Longest time that a new pod of a TrainingJob has to end, whatever its template says.",
            metavar="SECONDS",
            remedy="give whole seconds, such as 600",
        ),
    ] = 600
    drain_idle_s: Annotated[
        float,
        Field(ge=0, le=86_400, allow_inf_nan=False),
        Flag(
            "Time after which a node of --expect-nodes that only surplus trainers hold is emptied, so that the"
            " autoscaler removes it; 0 empties none.",
            metavar="SECONDS",
            remedy="give seconds, such as 300",
        ),
    ] = 0.0
    once: Annotated[bool, Flag("Run one round, then exit.")] = False
    dry_run: Annotated[bool, Flag("Print each changed plan; write nothing to the cluster.")] = False
    record: Annotated[
        OptionalPath,
        Flag(
            "Folder for a JSON record of each changed decision; the last 1,000 are kept, and one of each hour"
            " of the 720 hours before that have one.",
            metavar="DIR",
            remedy="give the path of a folder",
            unset="no records",
        ),
    ] = None
    no_leader_election: Annotated[
        bool,
        Flag("Change objects without holding the Lease; make sure that no other controller runs in the cluster."),
    ] = False

    @property
    def limits(self) -> Limits:
        """What a plan must keep to, without the quotas."""
        return replace(
            super().limits,
            serving_grace_s=SERVING_GRACE_S,
            untried_s=UNTRIED_S,
            serving_schedulers=self.serving_scheduler,
            lend_running=self.lend_by_resize,
            drain_idle_s=self.drain_idle_s,
        )
