"""The flags of `edl plan`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from edl.settings.flags import Flag
from edl.settings.shared import (
    DEFAULT_POLICY,
    ConsolidationSettings,
    OptionalPath,
    PolicyName,
    SavedClusterSettings,
    policies,
)


class PlanOutput(StrEnum):
    """Output formats of a plan; `wide` adds the prices and the full account of each job."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"


class PlanSettings(SavedClusterSettings, ConsolidationSettings):
    """The values of the flags of `edl plan`."""

    filename: Annotated[
        tuple[str, ...],
        Flag(
            "File of a saved cluster: JSON, YAML or Lists; - is standard input. Repeat the flag for more files; a"
            " later file replaces objects of an earlier one.",
            metavar="FILE",
            remedy="put -f before each file: edl plan -f now.yaml",
            short="f",
        ),
    ]
    policy: Annotated[
        PolicyName,
        Flag(
            "Policy by which jobs share the cluster.",
            metavar="NAME",
            unset=DEFAULT_POLICY,
            choices=policies,
        ),
    ] = ""
    certificate: Annotated[
        OptionalPath,
        Flag(
            "File for a proof of the plan in rationals, which tools/verify_certificate.py checks without edl.",
            metavar="FILE",
            remedy="give the path of a file that can be written",
            unset="no proof",
        ),
    ] = None
    output: Annotated[
        PlanOutput,
        Flag("Output format; wide adds the prices and the full account of each job.", short="o"),
    ] = PlanOutput.TABLE
