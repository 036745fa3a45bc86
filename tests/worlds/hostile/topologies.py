"""Topologies of jobs that are refused, and those beside them that are not."""

from __future__ import annotations

from typing import Any

from tests.worlds.hostile.manifests import Object, accepted, edited, refused

BLOCK, RACK = {"key": "x/block"}, {"key": "x/rack", "mode": "Required"}
ONE_WAY = "exactly one of key and levels must be set; key is the short form of one level"
PART = "make min-instance, max-instance, instances and sizes multiples of it"


def in_slices(size: int, **trainer: Any) -> Object:
    """The small job of 2 to 6 trainers with slices of a rack, and other fields of the trainer."""
    job = edited("topology", levels=[BLOCK, RACK], slice={"size": size})
    job["spec"]["trainer"] |= {name.replace("_", "-"): value for name, value in trainer.items()}
    return job


TOPOLOGIES = [
    accepted("topology", edited("topology", key="topology.kubernetes.io/zone", mode="Required")),
    accepted("a topology without a mode", edited("topology", key="rack")),
    refused("a topology without a key", edited("topology", mode="Required"), ONE_WAY, ONE_WAY),
    refused(
        "an unknown mode", edited("topology", key="rack", mode="Always"), "is not a known value", "Unsupported value"
    ),
    refused("a key that is no label", edited("topology", key="a rack"), "does not match", "should match"),
    refused("an empty key", edited("topology", key=""), "is shorter than 1 character", "at least 1 chars long"),
    accepted("levels", edited("topology", levels=[BLOCK, RACK, {"key": "kubernetes.io/hostname"}])),
    refused("an empty list of levels", edited("topology", levels=[]), ONE_WAY, ONE_WAY),
    refused("a key beside levels", edited("topology", key="rack", levels=[BLOCK]), ONE_WAY, ONE_WAY),
    refused(
        "a mode beside levels",
        edited("topology", mode="Required", levels=[BLOCK]),
        "mode belongs to key, and levels are set",
        "mode belongs to key, and levels are set",
    ),
    refused(
        "two levels that are required",
        edited("topology", levels=[BLOCK | {"mode": "Required"}, RACK]),
        "more than one level is Required (x/block and x/rack); keep the narrowest",
        "more than one level is Required; keep the narrowest",
    ),
    refused("a level twice", edited("topology", levels=[BLOCK, BLOCK]), "x/block", "Duplicate value"),
    refused("a level without a key", edited("topology", levels=[{"mode": "Required"}]), "key is missing", "Required"),
    refused("nine levels", edited("topology", levels=[{"key": f"l{i}"} for i in range(9)]), "8", "at most 8 items"),
    accepted("slices", in_slices(2)),
    accepted("slices of one level", edited("topology", key="rack", slice={"size": 2, "key": "rack"})),
    accepted(
        "slices of the wider level", edited("topology", levels=[BLOCK, RACK], slice={"size": 2, "key": "x/block"})
    ),
    accepted("slices beside a step", in_slices(2, step=2)),
    accepted("slices beside sizes", in_slices(2, sizes=[2, 6])),
    refused("slices of one", in_slices(1), "slice.size 1 is below 2", "greater than or equal to 2"),
    refused("slices without a size", edited("topology", key="rack", slice={}), "size is missing", "Required"),
    refused(
        "slices of no level",
        edited("topology", key="rack", slice={"size": 2, "key": "block"}),
        "slice.key block is the label of no level",
        "slice.key is the label of no level",
    ),
    refused(
        "a part of a slice", in_slices(4), "a number of trainers 2 is no multiple of topology.slice.size 4", PART
    ),
    refused("an odd maximum", in_slices(2, max_instance=5), "a number of trainers 5 is no multiple", PART),
    refused("a pinned part of a slice", in_slices(2, instances=3), "a number of trainers 3 is no multiple", PART),
    refused("a size with a part", in_slices(2, sizes=[2, 5, 6]), "a number of trainers 5 is no multiple", PART),
    refused(
        "slices without requests",
        in_slices(2, resources={}),
        "so edl cannot keep slices whole",
        "so edl cannot keep slices whole",
    ),
]
