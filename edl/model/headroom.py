"""Capacity reserved for serving pods that do not exist yet: the request to a plan, and the plan's answer."""

from __future__ import annotations

from dataclasses import dataclass

from edl.model.resources import PodShape, Resources

SERVING_SLO = 20.0
"""The default: one waiting pod-second costs as much as this many idle core-seconds."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Capacity to reserve for serving pods of one shape that do not exist yet.

    Attributes:
        shape: the shape of the pods; each of them is to fit whole on a node.
        pods: for how many, >= 0.
        reason: why so many, for people.
        may_delete: trainers above the minimum of their job may be deleted for it now; else only free capacity is
            kept.
    """

    shape: PodShape
    pods: int
    reason: str
    may_delete: bool = False


@dataclass(frozen=True, slots=True)
class KeptHeadroom:
    """The capacity that a plan reserves for one `Headroom`.

    Attributes:
        request: what each pod requests.
        wanted: for how many pods capacity is asked.
        held: for how many of them there is capacity once the plan is carried out; never more than wanted.
        deleted: trainers that the plan deletes for it.
        reason: why so many are wanted.
    """

    request: Resources
    wanted: int
    held: int
    deleted: int
    reason: str
