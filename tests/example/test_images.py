"""The Dockerfile of each example puts there what its job starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "example"
PAIRS = [
    ("examplejob.yaml", "Dockerfile"),
    *((f"{name}/job.yaml", f"{name}/Dockerfile") for name in ("ctr", "fit_flights", "torch_elastic")),
]


def content(dockerfile: Path) -> set[str]:
    """The files that its COPY lines put into the image."""
    found = set()
    for line in re.findall(r"^COPY (.+)$", dockerfile.read_text(), re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            found |= {target + path.name for path in dockerfile.parent.glob(source)}
    return found


def program(spec: dict[str, str]) -> str:
    """The file that an entrypoint starts, `python FILE` or `python -m MODULE` in its workspace."""
    python, *words = spec["entrypoint"].split()
    assert python == "python"
    return f"{spec['workspace']}/{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0]


@pytest.mark.parametrize(("job", "dockerfile"), PAIRS)
def test_the_image_of_an_example_has_what_its_job_starts(job: str, dockerfile: str) -> None:
    spec = yaml.safe_load((EXAMPLES / job).read_text())["spec"]
    text = (EXAMPLES / dockerfile).read_text()
    assert spec["image"] in re.findall(r"docker build -t (\S+) ", text)
    assert program(spec["trainer"]) in content(EXAMPLES / dockerfile)
