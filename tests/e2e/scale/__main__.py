"""Measure on a real API server: `python -m tests.e2e.scale five-thousand [--nodes N --jobs N]`, or `... peer`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.scale import five_thousand, peer
from tests.e2e.scale.world import BARE, Size, started

GROWTH_FOR_EACH_NODE = 1.4
"""7,000 pods for 5,000 nodes."""


def main() -> None:
    """Start a control plane without kubelets, fill it, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("scene", choices=["five-thousand", "peer"])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--times", type=int, default=20, help="of each event")
    options = parser.parse_args()
    is_peer = options.scene == "peer"
    size = peer.PEER if is_peer else Size(options.nodes, options.jobs)
    with (
        tempfile.TemporaryDirectory(prefix="edl-scale-") as folder,
        ControlPlane.start(Path(folder), nodes=(), settings=BARE) as plane,
        started(plane, size, "--log-level", "warn") as world,
    ):
        if is_peer:
            peer.measure(world, times=options.times, many=250)
        else:
            growth = round(options.nodes * GROWTH_FOR_EACH_NODE)
            five_thousand.measure(world, five_thousand.Campaign(options.times, max(1, options.times // 2), growth))


if __name__ == "__main__":
    main()
