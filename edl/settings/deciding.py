"""Flags of the commands that decide again and again for a live cluster: the controller, and its shadow."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from edl.model.limits import SERVING_GRACE_S, UNTRIED_S, Limits
from edl.observability.logs import LogFormat
from edl.settings.flags import Flag
from edl.settings.shared import ClusterSettings, ConsolidationSettings, Namespace

LogLevel = Literal["debug", "info", "warn", "error", "crit"]

_LEVEL_ALIASES = {"dbug": "debug", "warning": "warn", "eror": "error", "critical": "crit", "fatal": "crit"}


def _level_of(value: object) -> object:
    word = value.lower() if isinstance(value, str) else value
    return _LEVEL_ALIASES.get(word, word) if isinstance(word, str) else word


def _without_duplicates(value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value))


class WatchingSettings(ClusterSettings):
    """Which part of a live cluster is watched, how often a plan is made, and what is logged."""

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
    log_level: Annotated[LogLevel, BeforeValidator(_level_of), Flag("Lowest level that is logged.")] = "info"
    log_format: Annotated[LogFormat, Flag("Format of the log on stderr.")] = "logfmt"
    interval_s: Annotated[
        float,
        Field(ge=0.1, le=3600, allow_inf_nan=False),
        Flag("Longest time between two plans.", metavar="SECONDS", remedy="give seconds, such as 5"),
    ] = 5.0


class DecidingSettings(ConsolidationSettings):
    """Flags that limit the plans of a controller."""

    serving_scheduler: Annotated[
        tuple[str, ...],
        AfterValidator(_without_duplicates),
        Flag(
            "Keep capacity for waiting pods of this scheduler only; repeat the flag for more.",
            metavar="NAME",
            remedy="give a schedulerName, such as default-scheduler",
            unset="every scheduler that tries its pods",
        ),
    ] = ()

    @property
    def limits(self) -> Limits:
        """The limits of every plan, without quotas."""
        return replace(
            super().limits,
            serving=replace(
                super().limits.serving,
                grace_s=SERVING_GRACE_S,
                untried_s=UNTRIED_S,
                schedulers=self.serving_scheduler,
            ),
        )
