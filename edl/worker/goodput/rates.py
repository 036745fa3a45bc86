"""How the learning rate follows the global batch.

Each rule gives the factor for a rate that was chosen at the base batch:

    none      1
    linear    batch / base (Goyal et al., arXiv:1706.02677)
    sqrt      the root of that (Krizhevsky, arXiv:1404.5997; for Adam: Malladi et al., arXiv:2205.10287)
    adascale  batch / base x efficiency (Johnson et al., "AdaScale SGD", ICML 2020): the gain of that paper

`adascale` is `linear` while the noise of the gradients hides the signal, and `none` once it does not. It needs the
noise scale, and is 1 until that is known.
"""

from __future__ import annotations

import math


def efficiency(noise: float, base: int, batch: int) -> float:
    """How much a record of a step advances the training, compared with one of a step of the base batch.

    Args:
        noise: the noise scale in records, at least 0.
        base: the base batch, at least 1.
        batch: the records of a step, at least 1.

    Returns:
        In (0, 1] for a batch of at least the base. Source: Pollux, OSDI 2021, equation 6.
    """
    return (noise + base) / (noise + batch)


def rate_factor(rule: str, noise: float | None, base: int, batch: int) -> float:
    """The factor for the learning rate of a step.

    Args:
        rule: one of `RATE_RULES` of `step_settings`.
        noise: the noise scale in records; None if it is not known.
        base: the batch for which the rate was chosen.
        batch: the records of a step.
    """
    if rule == "linear":
        return batch / base
    if rule == "sqrt":
        return math.sqrt(batch / base)
    if rule == "adascale" and noise is not None:
        return batch / base * efficiency(noise, base, batch)
    return 1.0
