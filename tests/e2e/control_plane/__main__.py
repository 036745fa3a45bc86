"""The command line: keep a cluster running for a person to try things on.

`up` prints one line on stdout, the export that points kubectl at the cluster, so that
`eval "$(python -m tests.e2e.control_plane up)"` works; everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.control_plane.build import ensure_binaries
from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.control_plane.commands import Settings
from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.processes import end_recorded, locked
from tests.e2e.control_plane.supervision import end_supervisor, supervisor_of
from tests.e2e.control_plane.versions import ControlPlaneError, binary_dir

DEFAULT_DIR = Path(".cluster")


def _up(arguments: argparse.Namespace) -> int:
    workdir: Path = arguments.dir.resolve()
    with locked(workdir, f"another process uses {workdir}; waiting for it"):
        if supervisor_of(workdir) is not None:
            _say(f"already running in {workdir}; `down` ends it")
        else:
            _start(workdir, arguments)
    _hint(workdir)
    return 0


def _start(workdir: Path, arguments: argparse.Namespace) -> None:
    settings = Settings(
        pod_delete_s=arguments.pod_delete_s,
        pod_ready_s=arguments.pod_ready_s,
        node_grace_s=arguments.node_grace_s,
        audit_level=arguments.audit_level,
        feature_gates=arguments.feature_gates,
    )
    plane = ControlPlane.start(workdir, nodes=arguments.nodes, settings=settings, detached=True)
    _say(f"{len(plane.ready_nodes())} nodes ready, at {workdir}")
    plane.kube.close()


def _hint(workdir: Path) -> None:
    _say(f"kubectl of the same version: {workdir / 'bin' / 'kubectl'}")
    print(f"export KUBECONFIG={workdir / 'kubeconfig'}")


def _down(arguments: argparse.Namespace) -> int:
    workdir: Path = arguments.dir.resolve()
    supervisor = supervisor_of(workdir)
    if supervisor is None:
        left = end_recorded(workdir / "run")
        _say(f"ended what was left: {', '.join(left)}" if left else f"nothing runs in {workdir}")
    else:
        end_supervisor(workdir, supervisor)
        _say(f"ended the cluster in {workdir}")
    shutil.rmtree(workdir / "etcd", ignore_errors=True)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    workdir: Path = arguments.dir.resolve()
    if supervisor_of(workdir) is None:
        ended = workdir / "run" / "ended"
        why = f"; it ended: {ended.read_text()}" if ended.is_file() else ""
        _say(f"nothing runs in {workdir}{why}")
        return 1
    kube = Kube(workdir / "kubeconfig")
    nodes, pods = kube.list("nodes"), kube.list("pods")
    kube.close()
    _say(f"running in {workdir}: {len(nodes)} nodes, {len(pods)} pods")
    _hint(workdir)
    return 0


def _build(_: argparse.Namespace) -> int:
    ensure_binaries()
    _say(f"built, in {binary_dir()}")
    return 0


def _say(message: str) -> None:
    print(message, file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.control_plane",
        description="A real Kubernetes control plane on this machine; kwok stands in for nodes.",
    )
    verbs = parser.add_subparsers(required=True, metavar="up|down|status|build")
    up = verbs.add_parser("up", help="start a cluster and leave it running")
    up.add_argument("--nodes", default="small", metavar="MIX", help="a mix's name or file")
    defaults = Settings()
    up.add_argument("--pod-delete-s", type=float, default=defaults.pod_delete_s, metavar="S")
    up.add_argument("--pod-ready-s", type=float, default=defaults.pod_ready_s, metavar="S")
    up.add_argument("--node-grace-s", type=int, default=defaults.node_grace_s, metavar="S")
    up.add_argument("--audit-level", default="", help="Metadata or RequestResponse")
    up.add_argument("--feature-gates", default="", metavar="NAME=BOOL,...")
    up.set_defaults(run=_up)
    down = verbs.add_parser("down", help="stop the cluster of `up`, by its pid files")
    down.set_defaults(run=_down)
    status = verbs.add_parser("status", help="say whether one runs; exit 1 where none does")
    status.set_defaults(run=_status)
    for verb in (up, down, status):
        verb.add_argument("--dir", type=Path, default=DEFAULT_DIR, help="default: .cluster")
    verbs.add_parser("build", help="build the programs only").set_defaults(run=_build)
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
