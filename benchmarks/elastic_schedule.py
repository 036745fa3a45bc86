"""One random schedule of resizes and kills, for edl (`elastic_torch`) and its peers (`elastic_peers`) alike."""

from __future__ import annotations

import random


def random_changes(resizes: int, kills: int, stops: int, *, trainers: int, seed: int) -> list[str]:
    """What happens, in order: each change as soon as training has settled after the one before.

    Args:
        resizes: how many planned ones: a trainer joins or leaves, at random if both can be.
        kills: how many trainers get SIGKILL; each is replaced.
        stops: how many trainers get SIGSTOP, and go on later.
        trainers: how many there are at first, and at most; there is at least one.
        seed: of the order.

    Returns:
        join, leave, kill or stop. While one trainer is left nothing happens to it, because nobody else has the model:
        then one joins first, in addition to `resizes`.
    """
    draw = random.Random(seed)  # noqa: S311 - not a secret
    kinds = ["planned"] * resizes + ["kill"] * kills + ["stop"] * stops
    draw.shuffle(kinds)
    found, live = list[str](), trainers
    while kinds:
        kind = kinds.pop(0)
        if kind == "planned":
            kind = draw.choice([*(["join"] if live < trainers else []), *(["leave"] if live > 1 else [])])
        elif live == 1:
            kinds.insert(0, kind)
            kind = "join"
        live += {"join": 1, "leave": -1}.get(kind, 0)
        found.append(kind)
    return found
