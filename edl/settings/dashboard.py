"""The flags of `edl dashboard`."""

from __future__ import annotations

from typing import Annotated

from edl.settings.flags import Flag
from edl.settings.shared import Address, ClusterSettings, LimitSettings, RunnablePolicySettings


class DashboardSettings(RunnablePolicySettings, LimitSettings, ClusterSettings):
    """The values of the flags of `edl dashboard`."""

    listen: Annotated[
        Address,
        Flag(
            "Address of the page. It asks for a token, which is printed as a part of the link to open.",
            metavar="HOST:PORT",
            remedy="give HOST:PORT, such as 127.0.0.1:8400",
        ),
    ] = "127.0.0.1:8400"
