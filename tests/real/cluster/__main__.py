"""The command line: keep a cluster of real kubelets running for a person to try things on.

`up` prints one line on stdout, the export that points kubectl at the cluster; everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.control_plane.processes import locked
from tests.e2e.control_plane.supervision import end_supervisor, supervisor_of
from tests.e2e.control_plane.versions import ControlPlaneError
from tests.real.cluster.images import BASE_IMAGE, CONTROLLER_IMAGE, TRAINER_IMAGE
from tests.real.cluster.running import RealCluster
from tests.real.cluster.sweep import sweep

DEFAULT_DIR = Path(".real-cluster")


def _up(arguments: argparse.Namespace) -> int:
    workdir: Path = arguments.dir.resolve()
    with locked(workdir, f"another process uses {workdir}; waiting for it"):
        if supervisor_of(workdir) is not None:
            _say(f"already running in {workdir}; `down` ends it")
        else:
            _start(workdir, images=not arguments.bare)
    _say(f"kubectl of the same version: {workdir / 'bin' / 'kubectl'}")
    print(f"export KUBECONFIG={workdir / 'kubeconfig'}")
    return 0


def _start(workdir: Path, *, images: bool) -> None:
    began = time.monotonic()
    cluster = RealCluster.start(workdir, detached=True)
    _say(f"{len(cluster.nodes)} nodes ready after {time.monotonic() - began:.0f} s, in {workdir}")
    if images:
        cluster.import_base()
        cluster.build_own_images()
        names = f"{BASE_IMAGE}, {TRAINER_IMAGE}, {CONTROLLER_IMAGE}"
        _say(f"on every node after {time.monotonic() - began:.0f} s: {names}")
    cluster.kube.close()


def _down(arguments: argparse.Namespace) -> int:
    workdir: Path = arguments.dir.resolve()
    supervisor = supervisor_of(workdir)
    if supervisor is not None:
        end_supervisor(workdir, supervisor)
    sweep(workdir)
    _say(f"ended the cluster in {workdir}" if supervisor else f"nothing runs in {workdir}")
    return 0


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.real.cluster",
        description="A Kubernetes cluster with two real kubelets on this machine, in namespaces of its own.",
    )
    verbs = parser.add_subparsers(required=True, metavar="up|down")
    up = verbs.add_parser("up", help="start a cluster with edl's images on it, and leave it running")
    up.add_argument("--bare", action="store_true", help="without edl's images")
    up.set_defaults(run=_up)
    down = verbs.add_parser("down", help="stop the cluster of `up` and remove what it wrote")
    down.set_defaults(run=_down)
    for verb in (up, down):
        verb.add_argument("--dir", type=Path, default=DEFAULT_DIR, help=f"default: {DEFAULT_DIR}")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0 done, 1 it failed, 2 usage."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except ControlPlaneError as error:
        _say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
