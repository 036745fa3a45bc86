"""A long step of a command is shown on a terminal while it runs, and nowhere else."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edl.explain.steps import showing


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_step_is_shown_on_a_terminal_alone(*, is_terminal: bool) -> None:
    out = io.StringIO()
    with showing("reading cluster.yaml [of 15,000 nodes]", Console(file=out, force_terminal=is_terminal, width=100)):
        pass
    assert ("reading cluster.yaml [of 15,000 nodes]" in out.getvalue()) == is_terminal


def test_an_error_ends_the_step() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no plan"), showing("planning", Console(file=out, force_terminal=True)):
        raise ValueError("no plan")
    assert out.getvalue().endswith(("\x1b[2K", "\x1b[?25h")), "the line is erased and the cursor is back"
