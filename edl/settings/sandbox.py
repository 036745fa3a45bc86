"""The flags of `edl sandbox`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from edl.settings.flags import Flag
from edl.settings.kubelet import NodesSettings
from edl.settings.shared import OptionalPath


class SandboxSettings(NodesSettings):
    """The values of the flags of `edl sandbox`."""

    port: Annotated[
        int,
        Field(ge=0, le=65535),
        Flag(
            "Port of the API server on 127.0.0.1; 0 takes a free one.",
            metavar="PORT",
            remedy="give 0, or 1024 to 65535",
        ),
    ] = 0
    kubeconfig: Annotated[
        OptionalPath,
        Flag(
            "File to write the kubeconfig to; it is removed at the end.",
            metavar="PATH",
            remedy="give the path of a file",
            unset="a file in a temporary folder",
        ),
    ] = None
    controller_flags: Annotated[
        str,
        Flag(
            "Flags for the controller of the sandbox, as one word: '--queues FILE --serving-headroom 1'.",
            metavar="FLAGS",
            remedy="give flags of edl controller, with quotes as for a shell",
            unset="none",
        ),
    ] = ""
    page: Annotated[bool, Flag("Also serve the page of `edl dashboard`, and print its address.")] = False
    demo: Annotated[
        bool, Flag("Train two jobs around a wave of serving pods, kill a trainer and a master, print what happened.")
    ] = False
