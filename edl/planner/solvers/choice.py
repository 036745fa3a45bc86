"""The solver of the planner: `highspy`, or `scipy` where `highspy` cannot be installed.

Both are HiGHS and find the same values. Among equal solutions they may choose different ones.
"""

from __future__ import annotations

from edl.planner.solvers.linear_program import Solver
from edl.planner.solvers.with_scipy import Scipy

try:
    from edl.planner.solvers.with_highspy import Highspy
except ImportError:  # not every platform has a build of it
    DEFAULT_SOLVER: Solver = Scipy()
else:
    DEFAULT_SOLVER = Highspy()
