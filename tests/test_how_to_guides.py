"""The how-to guides print what they say: each command with output beside it runs, in the folder of the guide."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "how-to"
RUN = re.compile(r"(?m)^```sh\n([^`]*)^```\n\n```text\n([^`]*)^```")
SECONDS = re.compile(r", [0-9.]+ s$", re.MULTILINE)
COMMANDS = [(page.name, *found) for page in sorted(GUIDES.glob("*.md")) for found in RUN.findall(page.read_text())]


def comparable(printed: str) -> str:
    """Without the time that a decision took, and without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in SECONDS.sub("", printed).strip().splitlines())


@pytest.mark.parametrize(
    ("page", "command", "printed"), COMMANDS, ids=[f"{c[0]}-{i}" for i, c in enumerate(COMMANDS)]
)
def test_a_command_prints_what_the_guide_says(page: str, command: str, printed: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=GUIDES, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert comparable(done.stdout) == comparable(printed), page


def test_the_quotas_of_the_guide_are_those_of_its_file() -> None:
    quotas = (GUIDES / "queues.yaml").read_text()
    assert f"# queues.yaml\n{quotas}" in (GUIDES / "queues-for-teams.md").read_text()


def test_several_guides_have_such_commands() -> None:
    assert len(COMMANDS) > 6
