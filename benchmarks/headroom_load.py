"""Two weeks of serving with days and nights, for `benchmarks.headroom`.

The requests a minute are those of the Azure LLM inference trace 2023 (conversations, CC BY 4.0), kept here so that no
download is needed. `edl.sim.importers.azure_llm` makes days and nights of them.
"""

from __future__ import annotations

from edl.sim.importers import azure_llm
from edl.sim.importers.azure_llm import CHANGE_DAY, DAY_S

__all__ = ("CHANGE_DAY", "DAYS", "DAY_S", "PODS", "REQUESTS_A_MINUTE", "replicas")

REQUESTS_A_MINUTE = (
    191,
    265,
    329,
    353,
    307,
    273,
    268,
    261,
    322,
    298,
    301,
    302,
    345,
    326,
    283,
    279,
    280,
    308,
    343,
    351,
    351,
    343,
    408,
    396,
    386,
    398,
    432,
    480,
    476,
    453,
    448,
    507,
    438,
    413,
    423,
    418,
    465,
    311,
    329,
    316,
    333,
    355,
    319,
    360,
    334,
    375,
    330,
    249,
    221,
    249,
    265,
    280,
    256,
    254,
    242,
    260,
    246,
    225,
)
DAYS = 14
PODS = 24
"""Pods for the mean of the hour by day."""


def replicas(days: int, seed: int = 0) -> tuple[tuple[float, int], ...]:
    """(second, pods from then on); see `azure_llm.replicas`."""
    return azure_llm.replicas(REQUESTS_A_MINUTE, days, pods=PODS, seed=seed)
