"""Rendered pods in files: `golden_files/*.input.yaml` -> `golden_files/*.output.yaml`.

After an intended change run `python -m tests.api.golden`, which writes the output files again, and review the diff.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from edl.api.manifest import PRIORITY_CLASSES, pod_manifest
from edl.api.v1 import parse_job
from edl.model.names import Role

FOLDER = Path(__file__).parent / "golden_files"


def inputs() -> list[Path]:
    """The input files."""
    return sorted(FOLDER.glob("*.input.yaml"))


def output_of(path: Path) -> Path:
    """The output file of an input file."""
    return path.with_name(path.name.replace(".input.", ".output."))


def render(path: Path) -> str:
    """Render the pods of an input file: a job, then a list of roles, indexes and planned nodes."""
    job, pods = yaml.safe_load_all(path.read_text())
    parsed = parse_job(job)
    bodies: list[dict[str, Any]] = [
        pod_manifest(
            parsed,
            Role(pod["role"]),
            pod["index"],
            default_master_image="edl/edl-controller:test",
            planned_node=pod.get("node"),
            priority_classes=pod.get("priorityClasses", PRIORITY_CLASSES),
        )
        for pod in pods
    ]
    return yaml.safe_dump_all(bodies, sort_keys=False, width=118)


if __name__ == "__main__":
    for source in inputs():
        output_of(source).write_text(render(source))
