"""The pods of sample jobs: `tests/api/golden_files/*.input.yaml` -> `*.output.yaml`.

After an intended change run `python -m tests.worlds.golden_pods`, which rewrites the outputs, and review the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edl.api.pods import PodPlace, pod_manifest
from edl.api.priorities import PRIORITY_CLASSES
from edl.api.v1 import parse_job
from edl.model.names import Role

FOLDER = Path(__file__).parents[1] / "api" / "golden_files"


def inputs() -> list[Path]:
    """The input files."""
    return sorted(FOLDER.glob("*.input.yaml"))


def output_of(path: Path) -> Path:
    """The output file of an input file."""
    return path.with_name(path.name.replace(".input.", ".output."))


def render(path: Path) -> str:
    """The pods of an input file, which holds a job and a list of roles, indexes and planned nodes."""
    job, pods = yaml.safe_load_all(path.read_text())
    parsed = parse_job(job)
    bodies: list[dict[str, Any]] = [
        pod_manifest(
            parsed,
            Role(pod["role"]),
            pod["index"],
            default_master_image="edl/edl-controller:test",
            place=PodPlace(pod.get("node")),
            priority_classes=pod.get("priorityClasses", PRIORITY_CLASSES),
        )
        for pod in pods
    ]
    return yaml.safe_dump_all(bodies, sort_keys=False, width=118)


if __name__ == "__main__":
    for source in inputs():
        output_of(source).write_text(render(source))
