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
_IN_STEP = {"globalBatch": 256, "deterministic": True}
_DETERMINISTIC = edited(elasticity=_IN_STEP)
_WIDER = trainer(max_instance=9)
_WIDER["spec"]["elasticity"] = dict(_IN_STEP)
_DATA = edited(dataset={"source": "index:100"})
_LONGER = edited(dataset={"source": "index:100"}, passes=3)
_BEGUN = {**_SUSPENDED, "dataset": {"epoch": 0, "done": 5, "total": 100}}

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
    Change(
        "max of a deterministic job while running",
        _RUNNING,
        _WIDER,
        accepted=False,
        server_says="trainer.max-instance of a deterministic job cannot change",
        before=_DETERMINISTIC,
    ),
    Change("max of a deterministic job while suspended", _SUSPENDED, _WIDER, accepted=True, before=_DETERMINISTIC),
    Change("a global batch while running", _RUNNING, _DETERMINISTIC, accepted=False, server_says="globalBatch"),
    Change("passes of a data set while running", _RUNNING, _LONGER, accepted=False, server_says="data", before=_DATA),
    Change("passes of a data set while suspended", _SUSPENDED, _LONGER, accepted=True, before=_DATA),
    Change("passes of a data set that has begun", _BEGUN, _LONGER, accepted=False, server_says="begun", before=_DATA),
)
