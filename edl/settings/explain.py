"""The flags of `edl explain`."""

from __future__ import annotations

from typing import Annotated

from pydantic import model_validator

from edl.settings.flags import Flag
from edl.settings.shared import (
    ClusterSettings,
    LimitSettings,
    RunnablePolicySettings,
    SavedClusterSettings,
    TextOutputSettings,
)


class ExplainSettings(
    TextOutputSettings, RunnablePolicySettings, LimitSettings, SavedClusterSettings, ClusterSettings
):
    """The values of the flags of `edl explain`."""

    job: Annotated[
        str,
        Flag(
            "Name of the job, or NAMESPACE/NAME.",
            metavar="JOB",
            remedy="give the name of a TrainingJob, such as ctr or ads/ctr",
            is_positional=True,
        ),
    ]
    namespace: Annotated[
        str,
        Flag(
            "Namespace of the job.",
            metavar="NS",
            remedy="give the name of a namespace, such as ads",
            short="n",
            unset="any namespace, if only one job has the name",
        ),
    ] = ""
    filename: Annotated[
        tuple[str, ...],
        Flag(
            "File of a saved cluster, to use instead of a live one; as for edl plan, repeat the flag for more files.",
            metavar="FILE",
            remedy="give the path of a readable file",
            short="f",
            unset="the live cluster",
        ),
    ] = ()

    @model_validator(mode="after")
    def _check_time(self) -> ExplainSettings:
        if self.now and not self.filename:
            raise ValueError(
                f"--now {self.now!r} is given without -f: a live cluster is explained for the present time; leave out"
                " --now, or give a saved cluster with -f"
            )
        return self
