"""`make planted`: plant one bug after the other, and see that each is caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planted import Bug
from tests.planted.bugs import BUGS

ROOT = Path(__file__).parents[2]


def is_caught(bug: Bug, copy: Path) -> bool:
    """Plant the bug in the copy, run its test there, and take it out again."""
    path = copy / "edl" / bug.file
    text = path.read_text()
    path.write_text(text.replace(bug.right, bug.wrong, 1))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/{bug.caught_by}"]
    try:
        done = subprocess.run(
            command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, check=False
        )
    finally:
        path.write_text(text)
    return done.returncode == 1


def main() -> int:
    """Plant every bug, or those that name one of the words given."""
    chosen = [b for b in BUGS if not sys.argv[1:] or any(word in b.what for word in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("edl", "tests", "deploy", "crds"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        missed = 0
        for bug in chosen:
            caught = is_caught(bug, copy)
            missed += not caught
            print(f"{'caught' if caught else 'MISSED'}  {bug.what}  ({bug.caught_by})", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
