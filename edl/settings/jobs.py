"""The flags of the commands for people without kubectl: `edl submit|get|watch|logs|scale|suspend|resume|delete`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from edl.settings.flags import Flag
from edl.settings.shared import ClusterSettings, Namespace


class JobsOutput(StrEnum):
    """Output formats of jobs, as kubectl names them."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class NamespaceSettings(ClusterSettings):
    """For commands about the jobs of one namespace."""

    namespace: Annotated[
        Literal[""] | Namespace,
        Flag(
            "Namespace of the jobs.",
            metavar="NS",
            remedy="give the name of a namespace, such as ads",
            short="n",
            unset="that of the current context of the kubeconfig, else default",
        ),
    ] = ""


def _check_name(name: str) -> str:
    if not name or "/" in name:
        raise ValueError("it is no name of a job")
    return name


JobName = Annotated[str, AfterValidator(_check_name)]
"""The name of a job, without its namespace."""


def _name_flag(text: str, unset: str = "") -> Flag:
    """Declare a positional argument that names jobs."""
    return Flag(
        text,
        metavar="JOB",
        remedy="give a name, such as ctr",
        unset=unset,
        is_positional=True,
        complete="edl.cli.jobs:job_names",
    )


class OneJobSettings(NamespaceSettings):
    """For commands about one job."""

    job: Annotated[
        JobName,
        _name_flag("Name of the job."),
    ]


class SubmitSettings(NamespaceSettings):
    """The values of the flags of `edl submit`."""

    file: Annotated[
        tuple[str, ...],
        Flag(
            "Files with TrainingJobs in YAML or JSON; - is standard input.",
            metavar="FILE",
            remedy="give the path of a readable file",
            is_positional=True,
        ),
    ]


class WatchSettings(NamespaceSettings):
    """The values of the flags of `edl watch`."""

    jobs: Annotated[
        tuple[JobName, ...],
        _name_flag("Names of jobs.", unset="all jobs"),
    ] = ()
    all_namespaces: Annotated[bool, Flag("Jobs of every namespace.", short="A")] = False
    output: Annotated[JobsOutput, Flag("Output format; wide adds columns, name prints only names.", short="o")] = (
        JobsOutput.TABLE
    )

    @model_validator(mode="after")
    def _check_scope(self) -> WatchSettings:
        if self.all_namespaces and self.jobs:
            raise ValueError(
                f"-A and the name {self.jobs[0]!r} exclude each other: a name belongs to one namespace; leave out -A,"
                " or the name"
            )
        return self


class GetSettings(WatchSettings):
    """The values of the flags of `edl get`."""

    watch: Annotated[bool, Flag("After the list, also print each change, until stopped.", short="w")] = False


class LogsSettings(OneJobSettings):
    """The values of the flags of `edl logs`."""

    role: Annotated[Literal["trainer", "pserver", "master", "all"], Flag("Role of the pods.")] = "trainer"
    index: Annotated[
        int,
        Field(ge=-1, le=1_000_000),
        Flag("Number of the pod within its role; -1 for all.", metavar="N", remedy="give a number, such as 0"),
    ] = -1
    container: Annotated[
        str,
        Flag("Container of the pods.", metavar="NAME", remedy="give a name", short="c", unset="the one of the role"),
    ] = ""
    follow: Annotated[bool, Flag("Go on as the pods write, until they end.", short="f")] = False
    previous: Annotated[bool, Flag("Log of the container before its last restart.", short="p")] = False
    tail: Annotated[
        int,
        Field(ge=-1, le=1_000_000_000),
        Flag("Number of lines from the end; -1 for all.", metavar="LINES", remedy="give a number, such as 20"),
    ] = -1


class ScaleSettings(OneJobSettings):
    """The values of the flags of `edl scale`."""

    replicas: Annotated[
        int,
        Field(ge=0, le=10_000),
        Flag(
            "Number of trainers, between min-instance and max-instance; 0 lets the planner decide again.",
            metavar="N",
            remedy="give a number, such as 4",
        ),
    ]


class SeveralJobsSettings(NamespaceSettings):
    """The values of the flags of `edl suspend` and `edl resume`."""

    jobs: Annotated[
        tuple[JobName, ...],
        _name_flag("Names of jobs."),
    ]


class DeleteSettings(SeveralJobsSettings):
    """The values of the flags of `edl delete`."""

    wait: Annotated[Literal["true", "false"], Flag("Wait until the jobs do not exist any more.")] = "true"
