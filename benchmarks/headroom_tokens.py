"""A second load of two weeks for `benchmarks.headroom`: tokens instead of requests, and the autoscaler of Kubernetes.

The generated tokens in each 15 s are those of the Azure LLM inference trace 2023 (conversations, CC BY 4.0). A
HorizontalPodAutoscaler with its defaults sets the pods: it looks every 15 s at the last minute, leaves the number
while it is wrong by a tenth or less, at most doubles it, and lowers it to the most that it wanted in five minutes.
"""

from __future__ import annotations

import random
from collections import deque
from math import ceil

from edl.sim.importers.azure_llm import DAY_S, TOLERANCE, of_day

SYNC_S, SEEN_S, STABLE_S = 15, 60, 300
LEAST_MORE = 4
"""So many pods may come at once, even if that more than doubles them."""

_TEXT = """
2096 5116 13838 23179 20644 21261 16004 18907 19992 18386 25950 18127 19641 16604 14687 23144 19559 20870
27048 22017 27590 19143 16928 20129 13988 19375 20953 20815 16689 23156 21238 13255 24133 17031 17899 19110
16995 14625 18941 17131 17921 14953 17723 26111 18806 14801 19187 16381 19120 22309 19320 19881 16491 19304
17544 20071 15315 17278 27307 19266 18516 22578 21896 17928 15824 21228 18672 21425 18590 22785 18897 16751
19938 16409 23394 21836 19271 18618 13105 19379 14008 18837 24897 23694 15182 17825 24863 17231 22828 17423
14817 19736 17070 18647 16478 14482 19204 14563 15393 17111 19035 16398 16439 13670 17881 18390 22523 12960
15830 13625 20913 21294 15811 17046 11262 15811 12836 12959 10995 14657 14287 16412 13447 14249 20127 16542
15629 16130 13925 15255 14741 14679 18379 12470 12620 17476 15582 17482 18399 19865 13329 15618 20756 16834
18317 17038 17413 14318 10343 19572 18977 14908 21654 15899 17133 19192 19099 13894 18979 18499 18545 21859
12751 20480 17964 16800 15223 17858 15030 19967 9550 12757 24115 16422 12629 19842 12182 13448 14737 23113
19845 14788 18792 22691 18699 17300 14988 15942 16503 20664 18954 13197 14321 18561 9283 18389 18616 15116
20144 16195 19901 14584 16130 17178 20111 17678 19245 17555 11843 19918 13741 14744 20650 15956 14481 18088
17067 19755 18028 11909 18861 19015 16975 18515 17963 18548 17994 14133 17029 16539 20419 9612 7710
"""
TOKENS = tuple(map(int, _TEXT.split()))
"""Generated tokens in each 15 s of the trace."""


def replicas(days: int, *, pods: float, seed: int = 0) -> tuple[tuple[float, int], ...]:
    """(second, pods from then on).

    Args:
        days: how many; day, night, batch and change of regime are those of `azure_llm`.
        pods: for the mean of `TOKENS` by day.
        seed: of where in the trace each hour starts.
    """
    rng = random.Random(f"tokens {seed}")  # noqa: S311 - a simulation, no secret
    mean, seen = sum(TOKENS) / len(TOKENS), SEEN_S // SYNC_S
    found: list[tuple[float, int]] = []
    wanted: deque[int] = deque(maxlen=STABLE_S // SYNC_S)
    start = 0
    for at_s in range(0, days * DAY_S, SYNC_S):
        if at_s % 3600 == 0:
            start = rng.randrange(len(TOKENS))
        now = start + at_s % 3600 // SYNC_S
        load = pods * sum(TOKENS[(now - i) % len(TOKENS)] for i in range(seen)) / seen / mean * of_day(at_s)
        before = found[-1][1] if found else max(1, ceil(load))
        wanted.append(before if abs(load / before - 1) <= TOLERANCE else max(1, ceil(load)))
        after = min(max(wanted) if wanted[-1] < before else wanted[-1], max(2 * before, before + LEAST_MORE))
        if not found or after != before:
            found.append((float(at_s), after))
    return tuple(found)
