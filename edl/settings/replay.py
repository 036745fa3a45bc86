"""The flags of `edl replay`."""

from __future__ import annotations

from typing import Annotated

from edl.settings.flags import Flag
from edl.settings.shared import RequiredPath, TableOutputSettings


class ReplaySettings(TableOutputSettings):
    """The values of the flags of `edl replay`."""

    record_file: Annotated[
        RequiredPath,
        Flag(
            "Record that edl controller --record wrote, or a folder of records.",
            metavar="RECORD",
            remedy="give the path of a record, or of a folder of records",
            is_positional=True,
        ),
    ]
