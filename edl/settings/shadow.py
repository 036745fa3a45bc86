"""The flags of `edl shadow`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from edl.settings.deciding import DecidingSettings, WatchingSettings
from edl.settings.flags import Flag
from edl.settings.shared import RequiredPath, RunnablePolicySettings

_DURATION = re.compile(r"([0-9]{1,6})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _check_duration(value: str) -> str:
    if value and not (_DURATION.fullmatch(value) and seconds_of(value)):
        raise ValueError("a duration is a whole number above 0 and one of s, m, h, d, w")
    return value


def seconds_of(duration: str) -> int:
    """The seconds of a duration such as 90s, 1h or 7d; 0 for an empty text."""
    found = _DURATION.fullmatch(duration)
    return int(found[1]) * _SECONDS[found[2]] if found else 0


Duration = Annotated[str, AfterValidator(_check_duration)]
"""A whole number of seconds, minutes, hours, days or weeks: `90s`, `10m`, `1h`, `7d`, `2w`."""


class ShadowSettings(RunnablePolicySettings, DecidingSettings, WatchingSettings):
    """The values of the flags of `edl shadow`."""

    for_: Annotated[
        Duration,
        Flag(
            "How long to observe, all runs with the same --out together; then the last report is written.",
            metavar="DURATION",
            remedy="give a duration, such as 1h, 1d or 1w",
            unset="until SIGINT or SIGTERM",
        ),
    ] = ""
    report_every: Annotated[
        Duration,
        Flag(
            "How often an intermediate report is written, and what was collected is kept.",
            metavar="DURATION",
            remedy="give a duration, such as 10m",
        ),
    ] = "10m"
    out: Annotated[
        RequiredPath,
        Flag(
            "Folder of report.html, report.json and state.json; a run goes on with the state that it finds.",
            metavar="DIR",
            remedy="give the path of a folder",
        ),
    ] = Path("edl-shadow")
    as_if_elastic: Annotated[
        bool,
        Flag(
            "Decide about batch Jobs, PyTorchJobs, RayClusters and Volcano Jobs that ask for nothing as if they had"
            " asked to be resized."
        ),
    ] = False
    as_if_min: Annotated[
        Literal["half", "one"],
        Flag("The minimum of such a workload: half of the pods that it has, or one."),
    ] = "half"
    as_if_max: Annotated[
        Literal["twice", "same"],
        Flag("Its maximum: twice the pods that it has, or the same."),
    ] = "twice"

    @property
    def for_s(self) -> float | None:
        """How long to observe, in seconds; None until a signal."""
        return float(seconds_of(self.for_)) or None

    @property
    def report_every_s(self) -> float:
        """How often a report is written, in seconds."""
        return float(seconds_of(self.report_every)) or float(seconds_of("10m"))
