"""A command that ends while a thread still solves a program ends with its own exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, sys, types
import numpy as np
from scipy.optimize import LinearConstraint, milp
from edl.cli.main import main
from edl.controller.planner_thread import PlannerThread
from edl.errors import PlanError

def decide() -> None:
    random = np.random.default_rng(0)
    rows, cost = LinearConstraint(random.random((30, 40)), -np.inf, 10), -random.random(40)
    while True:
        milp(cost, constraints=rows, integrality=np.ones(40), options={"time_limit": 0.05})

async def until_late() -> None:
    try:
        await PlannerThread().run(decide, 0.5)
    except PlanError as error:
        print(type(error).__name__)

def command() -> None:
    asyncio.run(until_late())
    raise SystemExit(ENDS)

sys.modules["edl.cli.app"] = types.SimpleNamespace(app=lambda: command)
main()
"""


@pytest.mark.parametrize(("ends", "code", "said"), [("3", 3, ""), ("None", 0, ""), ("'a problem'", 1, "a problem\n")])
def test_a_command_ends_with_its_code_while_a_decision_is_in_the_solver(ends: str, code: int, said: str) -> None:
    script = SCRIPT.replace("ENDS", ends)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "PlanError\n", said)
