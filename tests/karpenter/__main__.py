"""Plays what the guide shows, and prints when a request pod or a node of Karpenter came or left.

python -m tests.karpenter
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.e2e.control_plane.cluster import ControlPlane
from tests.e2e.worlds.jobs import training_job
from tests.karpenter.programs import karpenter_on
from tests.karpenter.scene import ASKS, OWN, Scene


def main() -> int:
    """Play one job that asks, beside one whose surplus takes what is left."""
    with (
        tempfile.TemporaryDirectory(prefix="edl-karpenter-") as folder,
        ControlPlane.start(Path(folder), nodes=OWN) as plane,
        karpenter_on(plane),
        Scene(plane, "--drain-idle-s=30") as here,
    ):
        world = here.world
        world.submit(training_job("surplus", min_trainers=2, max_trainers=20))
        here.wait(lambda: world.running("surplus") == 3, "the cluster is full")
        here.note("job new is created; its minimum of 4 trainers has no capacity")
        world.submit(training_job("new", min_trainers=4, max_trainers=4, **ASKS))
        here.wait(lambda: world.running("new") == 4, "the job that asked runs")
        here.note("4 trainers of new run")
        print(plane.kube.kubectl("get", "nodeclaims,nodes", "-L", "pool,node.kubernetes.io/instance-type"))
        here.note("job new is deleted")
        world.withdraw("new")
        here.wait(lambda: world.running("surplus") == 6, "surplus takes the node")
        here.note("3 trainers above the minimum of surplus run on the node")
        here.wait(lambda: world.running("surplus") == 3, "the node is emptied")
        here.note("the node is emptied (NodeIdle)")
        here.wait(lambda: here.seen("node goes"), "the node leaves")
    for at_s, said in here.log:
        print(f"{at_s:6.1f} s  {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
