"""The flags of `edl kubelet`, and those that it shares with `edl sandbox`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from edl.errors import ConfigError
from edl.model.quantity import parse_quantity
from edl.settings.flags import Flag, Settings
from edl.settings.shared import ClusterSettings, OptionalPath


def _check_amount(resource: str) -> AfterValidator:
    def check(value: str) -> str:
        try:
            amount = parse_quantity(value, resource)
        except ConfigError as error:
            raise ValueError(str(error).partition("; ")[0]) from error
        if amount == 0:
            raise ValueError("it is zero")
        return value

    return AfterValidator(check)


class NodesSettings(Settings):
    """For commands that start nodes."""

    nodes: Annotated[
        int,
        Field(ge=1, le=100),
        Flag("Number of nodes.", metavar="N", remedy="give a whole number, such as 4"),
    ] = 4
    cpu: Annotated[
        str,
        _check_amount("cpu"),
        Flag("CPU that each node offers; it may be more than this machine has.", metavar="CPU", remedy="give 4"),
    ] = "4"
    memory: Annotated[
        str,
        _check_amount("memory"),
        Flag("Memory that each node offers.", metavar="MEMORY", remedy="give an amount such as 8Gi"),
    ] = "8Gi"


class KubeletSettings(NodesSettings, ClusterSettings):
    """The values of the flags of `edl kubelet`."""

    folder: Annotated[
        OptionalPath,
        Flag(
            "Folder for logs and volumes, which is kept.",
            metavar="DIR",
            remedy="give the path of a folder",
            unset="a temporary folder, which is removed at the end",
        ),
    ] = None
    prefix: Annotated[
        str,
        Field(pattern=r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?"),
        Flag("Nodes are named NAME-0, NAME-1...", metavar="NAME", remedy="give lower-case letters, such as sandbox"),
    ] = "sandbox"
