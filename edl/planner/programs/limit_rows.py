"""Constraints of linear programs over trainer counts that keep quotas and the allowed load."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edl.planner.problem import Problem
from edl.planner.programs.columns import FloatArray
from edl.planner.quota import QuotaRow
from edl.planner.trial_packing import TrialPacking


def limit_rows(packing: TrialPacking) -> tuple[FloatArray, FloatArray]:
    """The constraints on the jobs' counts other than node capacity: quotas and --max-load-desired."""
    load, left = _load_rows(packing)
    quota, limits = quota_rows(packing)
    return np.vstack([load, quota]), np.concatenate([left, limits])


def quota_rows(packing: TrialPacking) -> tuple[FloatArray, FloatArray]:
    """The quotas as constraints on the jobs' counts, scaled so that each quota is 1, in the order of `quotas_of`."""
    number = {row: k for k, row in enumerate(quotas_of(packing.problem, packing.members))}
    rows, limits = np.zeros((len(number), len(packing.members))), np.ones(len(number))
    for k, j in enumerate(packing.members):
        for quota_use in packing.problem.demands[j].quota_uses:
            scale = max(1, quota_use.row.limit)
            rows[number[quota_use.row], k] = quota_use.each / scale
            limits[number[quota_use.row]] -= quota_use.fixed / scale
    limits[[k for row, k in number.items() if row.limit == 0]] -= 1.0
    return rows, limits


def quotas_of(problem: Problem, members: Iterable[int]) -> tuple[QuotaRow, ...]:
    """The quotas that apply to some jobs, sorted."""
    return tuple(sorted({quota_use.row for j in members for quota_use in problem.demands[j].quota_uses}))


def _load_rows(packing: TrialPacking) -> tuple[FloatArray, FloatArray]:
    """--max-load-desired as constraints on the jobs' counts; the planned counts always satisfy them."""
    share, problem = packing.problem.limits.sharing.max_load_desired, packing.problem
    if share >= 1.0:
        return np.zeros((0, len(packing.members))), np.zeros(0)
    total = problem.allocatable.sum(axis=0)
    left = (share * total - (total - packing.free.sum(axis=0))).clip(min=0)
    rows = problem.request[[problem.demands[j].shape for j in packing.members]].T.astype(np.float64)
    scale = total.clip(min=1).astype(np.float64)
    planned = rows @ np.array([packing.count[j] for j in packing.members], dtype=np.float64)
    return rows / scale[:, None], (planned + left) / scale
