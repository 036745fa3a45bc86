"""`tools/verify_certificate.py` as a module, without edl on its path."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"
SCRIPT, SPEEDS = TOOLS / "verify_certificate.py", TOOLS / "verify_speeds.py"


def loaded(script: Path) -> Any:
    """A script as a module."""
    spec = spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verifier: Any = loaded(SCRIPT)
sys.modules.setdefault(SCRIPT.stem, verifier)  # which the other script imports, as they lie side by side
of_speeds: Any = loaded(SPEEDS)


def faults(snapshot: object, plan: object, certificate: object, script: Any = verifier) -> list[str]:
    """What the check reports; a document that it cannot use is a fault too."""
    try:
        found: list[str] = script.verify(snapshot, plan, certificate)[1]
    except Exception as error:  # as the script does: a broken document may fail anywhere
        return [f"{type(error).__name__}: {error}"]
    return found
