"""Room for serving pods that do not exist yet: what is asked of a plan, and what the plan keeps."""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.resources import PodShape, Resources

SERVING_SLO = 20.0
"""Without another word, one waiting pod-second costs as much as this many idle core-seconds."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Room that a plan is to keep free for further serving pods of one shape.

    Attributes:
        shape: of the pods; each of them is to fit whole on a node.
        pods: for how many, >= 0.
        reason: why so many, for people.
        may_delete: trainers above the minimum of their job may be deleted for it now; else only free room is kept.
    """

    shape: PodShape
    pods: int
    reason: str
    may_delete: bool = False


@dataclass(frozen=True, slots=True)
class KeptRoom:
    """What a plan does about a `Headroom`.

    Attributes:
        request: what each pod requests.
        wanted: for how many pods room is asked.
        held: for how many of them there is room once the plan is carried out; never more than wanted.
        deleted: trainers that the plan deletes for it.
        reason: why so many are wanted.
    """

    request: Resources
    wanted: int
    held: int
    deleted: int
    reason: str
