"""Updates of TrainingJobs that have a status, and whether the API server accepts them."""

from __future__ import annotations

from tests.worlds.hostile.manifests import (
    Change,
    edited,
    template,
    trainer,
)

_RUNNING = {"phase": "Running", "trainer": {"desired": 2, "ready": 2, "pending": 0}}
_WAITING = {"phase": "Pending", "trainer": {"desired": 0, "ready": 0, "pending": 0}}
_SUSPENDED = {"phase": "Suspended", "trainer": {"desired": 0, "ready": 0, "pending": 0}}
_LEAVING = {"phase": "Suspended", "pserver": {"desired": 0, "ready": 1, "pending": 0}}
_OTHER_TEMPLATE = template(nodeSelector={"pool": "b"})
_OTHER_IMAGE = edited(image="example/trainer:2")
_UNTYPED_TEMPLATE = template(dnsConfig={"searches": ["example.org"]})

CHANGES: tuple[Change, ...] = (
    Change("image while running", _RUNNING, _OTHER_IMAGE, accepted=False, server_says="image cannot change"),
    Change("template while running", _RUNNING, _OTHER_TEMPLATE, accepted=False, server_says="template cannot change"),
    Change(
        "untyped part of a template while running", _RUNNING, _UNTYPED_TEMPLATE, accepted=False, server_says="cannot"
    ),
    Change(
        "template while a pserver is left", _LEAVING, _OTHER_TEMPLATE, accepted=False, server_says="cannot change"
    ),
    Change("image without a status", {}, _OTHER_IMAGE, accepted=True),
    Change("image while waiting", _WAITING, _OTHER_IMAGE, accepted=True),
    Change("template while suspended", _SUSPENDED, _OTHER_TEMPLATE, accepted=True),
    Change("max below the running count", _RUNNING, trainer(max_instance=2), accepted=True),
    Change("min above every capacity", _RUNNING, trainer(min_instance=9000, max_instance=9000), accepted=True),
    Change("suspend while running", _RUNNING, edited(suspend=True), accepted=True),
)
