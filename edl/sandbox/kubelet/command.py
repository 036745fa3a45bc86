"""`edl kubelet`: builds a kubelet from its flags, and runs it until a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
from pathlib import Path

from edl.errors import ConfigError, PermanentError, TemporaryError
from edl.kube.client.session import ApiSession
from edl.observability.logs import log_event
from edl.sandbox.kubelet.images import default_images, table
from edl.sandbox.kubelet.kubelet import KubeletSettings, running
from edl.sandbox.kubelet.node import NodeShape
from edl.settings import kubelet as flags
from edl.waiting import wait_for_first

_log = logging.getLogger(__name__)


async def serve_kubelet(settings: flags.KubeletSettings) -> int:
    """Run the nodes.

    Returns:
        The exit code: 0 after SIGINT or SIGTERM, 1 if the supervisor of the containers was killed.

    Raises:
        ConfigError: a flag or a folder cannot be used.
        EdlError: the API server rejects the request, or does not answer.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    images = default_images()
    async with await ApiSession.open(settings.kubeconfig) as session:
        folder = make_folder(settings.folder, "--folder")
        wanted = KubeletSettings(
            settings.nodes,
            NodeShape(settings.cpu, settings.memory),
            folder,
            images,
            owns_folder=settings.folder is None,
            prefix=settings.prefix,
        )
        try:
            async with running(session, wanted) as kubelet:
                sys.stderr.write(f"images that this kubelet knows:\n{table(images)}\n")
                log_event(_log, logging.INFO, "kubelet started", server=session.host, nodes=settings.nodes)
                run, stopped = await wait_for_first(kubelet.run(), stop.wait())
        except OSError as error:
            raise unwritable(folder, error) from error
        except TemporaryError as error:
            remedy = "start the cluster of this kubeconfig, or give another one"
            raise PermanentError(f"{error}; {remedy}") from error
    if not stopped.cancelled():
        log_event(_log, logging.INFO, "stopped", code=0)
        return 0
    run.result()
    log_event(_log, logging.ERROR, "stopped because the supervisor of the containers has ended", code=1)
    return 1


def unwritable(folder: Path, error: OSError) -> ConfigError:
    """Make the error for a folder on a full or broken disk."""
    return ConfigError(
        f"{error.filename2 or error.filename or folder}: cannot be written: {error.strerror}; free some space, or set"
        " TMPDIR to another folder"
    )


def make_folder(wanted: Path | None, flag: str) -> Path:
    """Make a folder for the kubelet: the wanted one, or a temporary one.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        if wanted is None:
            return Path(tempfile.mkdtemp(prefix="edl-sandbox-"))
        wanted = wanted.absolute()
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError as error:
        where = wanted or tempfile.gettempdir()
        raise ConfigError(f"{flag} {where}: cannot be written: {error.strerror}; give another folder") from error
