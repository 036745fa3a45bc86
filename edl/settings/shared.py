"""Flags and types of values that several commands share.

A flag that means the same to several commands is declared here, in a class that their settings inherit.
"""

# ruff: noqa: PLC0415 - a wrong value is reported at once, without loading the planner or a YAML parser

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from edl.errors import ConfigError
from edl.model.headroom import SERVING_SLO
from edl.model.limits import LendingLimits, Limits, NodeLimits, ServingLimits, SharingLimits
from edl.model.times import seconds_of_flag
from edl.settings.flags import Flag, Settings, checked_by

DEFAULT_POLICY = "maxmin"

CLEAR_LENDING_AFTER_S = 30.0
"""How long serving uses lent CPU before its node is cleared."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_PORT = 65535
_MOST_HEADROOM, _LONGEST_QUOTE = 100_000, 100

AUTO = "auto"
"""The value of --serving-headroom that learns."""


class TableOutput(StrEnum):
    """Output formats of a table."""

    TABLE = "table"
    JSON = "json"


class TextOutput(StrEnum):
    """Output formats of a text."""

    TEXT = "text"
    JSON = "json"


def _check_namespace(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError("a namespace has at most 63 characters: lowercase letters, digits and hyphens")
    return value


def _check_headroom(value: str) -> None:
    if value != AUTO and not (value.isascii() and value.isdigit() and int(value) <= _MOST_HEADROOM):
        raise ConfigError(
            f"--serving-headroom {value[:_LONGEST_QUOTE]!r}: it must be a whole number from 0 up to {_MOST_HEADROOM},"
            f" or {AUTO}; give a number of pods, such as 2, or {AUTO}"
        )


def _check_address(value: str) -> str:
    _, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError("it has no port from 0 to 65535")
    return value


def _check_not_empty(value: object) -> object:
    if value == "":
        raise ValueError("it is empty")
    return value


def policies() -> Sequence[str]:
    """The policies that `edl plan` takes."""
    from edl.planner.policies.registry import policy_names

    return policy_names()


def policies_to_run() -> Sequence[str]:
    """The policies that a controller runs."""
    from edl.planner.policies.registry import policy_names

    return policy_names(comparisons=False)


def _check_policy(name: str) -> str:
    if name and name not in policies():
        raise ValueError("there is no such policy")
    return name


def _check_policy_to_run(name: str) -> str:
    if name and name not in policies_to_run():
        in_plan = name in policies()
        raise ValueError("only edl plan takes it, for comparison" if in_plan else "there is no such policy")
    return name


Namespace = Annotated[str, AfterValidator(_check_namespace)]
"""The name of a namespace."""

Address = Annotated[str, AfterValidator(_check_address)]
"""HOST:PORT; an empty host means every address of the machine."""

PolicyName = Annotated[str, AfterValidator(_check_policy)]
"""The name of a policy, also of one that is only for comparison; empty for the default."""

RunnablePolicyName = Annotated[str, AfterValidator(_check_policy_to_run)]
"""The name of a policy that a controller runs; empty for the default."""

RequiredPath = Annotated[Path, BeforeValidator(_check_not_empty)]
"""A path that is not empty; whether a file exists is checked when it is read."""

OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""A path, or None; an empty text is None."""


class ClusterSettings(Settings):
    """For commands that read a live cluster."""

    kubeconfig: Annotated[
        str,
        Flag(
            "Kubeconfig of the cluster.",
            metavar="FILE",
            remedy="give the path of a readable kubeconfig",
            unset="$KUBECONFIG, then ~/.kube/config, then the service account of the pod",
        ),
    ] = ""


class SavedClusterSettings(Settings):
    """For commands that read a saved cluster."""

    now: Annotated[
        str,
        AfterValidator(checked_by(lambda text: seconds_of_flag("--now", text))),
        Flag(
            "Time for which a saved cluster is planned.",
            metavar="RFC3339",
            remedy="give a time, such as 2026-01-05T10:00:00Z",
            unset="the newest time in the files",
        ),
    ] = ""

    @property
    def now_s(self) -> float | None:
        """The time of `--now`, in seconds since the epoch; None if it was not given."""
        return seconds_of_flag("--now", self.now) if self.now else None


class LimitSettings(Settings):
    """Flags that limit every plan."""

    max_load_desired: Annotated[
        float,
        Field(gt=0, le=1, allow_inf_nan=False),
        Flag(
            "Training grows until the requests of all pods reach this share of a resource.",
            metavar="SHARE",
            remedy="give a share, such as 0.97",
        ),
    ] = 1.0
    serving_headroom: Annotated[
        str,
        BeforeValidator(str),
        AfterValidator(checked_by(_check_headroom)),
        Flag(
            "Number of further serving pods of each shape for which growth leaves capacity free; auto learns it from"
            " what serving did, and deletes trainers above the minimum for it before the pods exist.",
            metavar="PODS|auto",
            remedy="give a number of pods, such as 2, or auto",
        ),
    ] = "0"
    serving_slo: Annotated[
        float,
        Field(gt=0, le=1e6, allow_inf_nan=False),
        Flag(
            "With --serving-headroom auto: one second of a waiting serving pod costs as much as so many idle"
            " core-seconds; more keeps more capacity.",
            metavar="CORE_SECONDS",
            remedy="give core-seconds, such as 20",
        ),
    ] = SERVING_SLO
    surplus_cpu_request: Annotated[
        float,
        Field(gt=0, le=1, allow_inf_nan=False),
        Flag(
            "Trainers above the minimum of their job request this part of their CPU and may use all of it; serving"
            " takes the rest at once. 1 lends nothing.",
            metavar="PART",
            remedy="give a part above 0 and up to 1, such as 0.1",
        ),
    ] = 1.0
    clear_lending_after_s: Annotated[
        float,
        Field(ge=0, le=86_400, allow_inf_nan=False),
        Flag(
            "Trainers that serving has slowed for so long are deleted or start elsewhere; 0 lets them be slow.",
            metavar="SECONDS",
            remedy="give seconds, such as 30",
        ),
    ] = CLEAR_LENDING_AFTER_S
    avoid_nodes_after: Annotated[
        int,
        Field(ge=0, le=1000),
        Flag(
            "New trainers avoid a node on which trainers of so many jobs failed or hung while others of the same jobs"
            " did well elsewhere; 0 avoids none.",
            metavar="JOBS",
            remedy="give a number of jobs, such as 2",
        ),
    ] = 0
    avoid_nodes_for_s: Annotated[
        float,
        Field(ge=1, le=86_400, allow_inf_nan=False),
        Flag(
            "How long such a node is avoided until one trainer is tried there; each further time twice as long.",
            metavar="SECONDS",
            remedy="give seconds, such as 600",
        ),
    ] = 600.0
    queues: Annotated[
        OptionalPath,
        Flag(
            "File with the quotas of the queues, QUEUE: {RESOURCE: QUANTITY}; a running controller follows it.",
            metavar="FILE",
            remedy="give the path of a readable file",
            unset="no quotas",
        ),
    ] = None
    tenants: Annotated[
        OptionalPath,
        Flag(
            "File that says which namespaces may use which priorities and queues; a running controller follows it.",
            metavar="FILE",
            remedy="give the path of a readable file",
            unset="all may use all",
        ),
    ] = None
    expect_nodes: Annotated[
        OptionalPath,
        Flag(
            "File with the groups of nodes that an autoscaler can add; a running controller follows it.",
            metavar="FILE",
            remedy="give the path of a readable file",
            unset="no nodes are asked for",
        ),
    ] = None

    @property
    def limits(self) -> Limits:
        """The limits of every plan, without quotas."""
        return Limits(
            sharing=SharingLimits(max_load_desired=self.max_load_desired),
            serving=ServingLimits(
                headroom=0 if self.serving_headroom == AUTO else int(self.serving_headroom),
                slo=self.serving_slo if self.serving_headroom == AUTO else 0.0,
            ),
            lending=LendingLimits(
                surplus_cpu_request=self.surplus_cpu_request, clear_after_s=self.clear_lending_after_s
            ),
            nodes=NodeLimits(avoid_after=self.avoid_nodes_after, avoid_for_s=self.avoid_nodes_for_s),
        )

    def read_limits(self) -> Limits:
        """The limits of every plan, with the present content of the files `--queues`, `--tenants`, `--expect-nodes`.

        Raises:
            ConfigError: a file cannot be read, or what it says makes no sense.
        """
        from edl.kube.expected_nodes_file import read_expected_nodes
        from edl.kube.queue_file import read_queues
        from edl.kube.tenants_file import read_tenants

        limits = replace(self.limits, quotas=read_queues(self.queues)) if self.queues else self.limits
        limits = replace(limits, tenants=read_tenants(self.tenants)) if self.tenants else limits
        return (
            replace(limits, nodes=replace(limits.nodes, expected=read_expected_nodes(self.expect_nodes)))
            if self.expect_nodes
            else limits
        )


class ConsolidationSettings(LimitSettings):
    """Flags that limit plans that may move pservers."""

    consolidate_after_s: Annotated[
        float,
        Field(ge=0, le=86_400, allow_inf_nan=False),
        Flag(
            "Time without a change after which pservers move if more trainers then fit, and trainers that prefer one"
            " domain come together; 0 never moves a pod.",
            metavar="SECONDS",
            remedy="give seconds, such as 1800",
        ),
    ] = 0.0

    @property
    def limits(self) -> Limits:
        """The limits of every plan, without quotas."""
        return replace(
            super().limits, sharing=replace(super().limits.sharing, consolidate_after_s=self.consolidate_after_s)
        )


class RunnablePolicySettings(Settings):
    """For commands that run a policy, or explain what a controller does."""

    policy: Annotated[
        RunnablePolicyName,
        Flag(
            "Policy by which jobs share the cluster.",
            metavar="NAME",
            unset=DEFAULT_POLICY,
            choices=policies_to_run,
        ),
    ] = ""


class TableOutputSettings(Settings):
    """For commands that print a table."""

    output: Annotated[TableOutput, Flag("Output format.", short="o")] = TableOutput.TABLE


class TextOutputSettings(Settings):
    """For commands that print a text."""

    output: Annotated[TextOutput, Flag("Output format.", short="o")] = TextOutput.TEXT
