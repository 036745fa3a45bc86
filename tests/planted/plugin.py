"""`pytest -p tests.planted.plugin` installs the bug named by EDL_PLANTED_BUG, also in child processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import Phase, settings

from tests.planted.install import BUG, NOTES, install_named

_STARTUP = Path(__file__).parent / "startup"
_ROOT = Path(__file__).parents[2]
_start = subprocess.Popen.__init__


def _start_with_bug(self: Any, *args: Any, **options: Any) -> None:
    environment = dict(options.get("env") or os.environ)
    environment |= {name: os.environ[name] for name in (BUG, NOTES) if name in os.environ}
    paths = [str(_STARTUP), environment.get("PYTHONPATH", ""), str(_ROOT)]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    _start(self, *args, **{**options, "env": environment})


install_named()
# A failing example is enough: to look for the smallest one takes longer than all else.
settings.register_profile("planted", derandomize=True, deadline=None, phases=(Phase.explicit, Phase.generate))
os.environ["HYPOTHESIS_PROFILE"] = "planted"
# Every process of a test gets the bug, so the class itself changes.
patch.object(subprocess.Popen, "__init__", _start_with_bug).start()
