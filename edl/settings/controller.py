"""The flags of `edl controller`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from edl.model.limits import Limits
from edl.model.names import CONTROLLER_NAMESPACE
from edl.settings.deciding import DecidingSettings, WatchingSettings
from edl.settings.flags import Flag
from edl.settings.shared import Address, Namespace, OptionalPath, RunnablePolicySettings


def _check_image(value: str) -> str:
    if any(c.isspace() for c in value):
        raise ValueError("it contains a space")
    return value


class ControllerSettings(RunnablePolicySettings, DecidingSettings, WatchingSettings):
    """The values of the flags of `edl controller`."""

    namespace: Annotated[
        Namespace,
        Flag(
            "Namespace of the controller's Lease; no job may be in it.",
            metavar="NS",
            remedy="give the name of a namespace, such as paddlecloud",
        ),
    ] = CONTROLLER_NAMESPACE
    listen: Annotated[
        Address,
        Flag(
            "Address that serves /metrics, /healthz and /readyz; not used with --once.",
            metavar="HOST:PORT",
            remedy="give HOST:PORT, such as 0.0.0.0:8080",
        ),
    ] = "0.0.0.0:8080"
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
    once: Annotated[bool, Flag("Make one plan, carry it out, then exit.")] = False
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
        """The limits of every plan, without quotas."""
        return replace(
            super().limits,
            lending=replace(super().limits.lending, running=self.lend_by_resize),
            nodes=replace(super().limits.nodes, drain_idle_s=self.drain_idle_s),
        )
