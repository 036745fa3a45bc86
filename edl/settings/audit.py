"""The flags of `edl audit`."""

from __future__ import annotations

from typing import Annotated

from edl.settings.flags import Flag
from edl.settings.shared import RequiredPath, TextOutputSettings


class AuditSettings(TextOutputSettings):
    """The values of the flags of `edl audit`."""

    journal: Annotated[
        RequiredPath,
        Flag(
            "Folder of a master's journal, or a copy of it; it is only read, so the master may be running.",
            metavar="JOURNAL",
            remedy="give the folder that edl master --journal was given",
            is_positional=True,
        ),
    ]
