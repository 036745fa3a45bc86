"""The rules for fields of a TrainingJob that must not change while its pods run, or after its training has begun.

An expression sees pods only through the stored status: the phase, or any ready or pending pod of any role. On an
update of the spec the API server takes the status from the stored object, so a request cannot forge it, and it does
not matter whether a controller runs. Between the creation of the first pod and the first status a change passes, and
the pods before and after it differ.

Objects are compared inside lists: the cost estimate treats an object as unbounded, and a list by its length.
"""

from __future__ import annotations

from typing import Any

from edl.model.names import Role
from edl.model.status import JobPhase

_PHASES_WITH_PODS = (JobPhase.CREATING, JobPhase.RUNNING, JobPhase.SCALING)
_DATASET_FIELDS = ("source", "seed", "shardSize", "maxQuarantinedFraction")
"""The fields of `spec.dataset` that the master records, except the epochs; `onLedgerLost` may change."""


def transition_rules() -> list[dict[str, Any]]:
    """The rules that compare an object with its former version, as in the CRD."""
    pods = _pods_exist()
    return [
        *(
            _rule(same, pods, f"{field} cannot change while the job has pods; set spec.suspend: true first")
            for field, same in _unchanged_with_pods().items()
        ),
        _rule(
            f"!{_is_deterministic('oldSelf')} || {_same('.trainer.max__dash__instance')}",
            pods,
            "trainer.max-instance of a deterministic job cannot change while the job has pods; set spec.suspend: true"
            " first, or set trainer.instances to train with fewer",
        ),
        _rule(
            _same_dataset(),
            "oldSelf.?status.?dataset.?total.orValue(0) > 0",
            "dataset and its epochs (by default passes) cannot change after training has begun, because the master's"
            " journal has them; create another job",
        ),
    ]


def _rule(same: str, frozen: str, message: str) -> dict[str, Any]:
    return {"rule": f"{same} || !({frozen})", "message": message}


def _unchanged_with_pods() -> dict[str, str]:
    """By field, the CEL expression which says that the field has not changed."""
    templates = {f"{role.value}.template": _same_optional(f".?{role.value}.?template") for role in Role}
    return {
        "image": _same(".image"),
        **templates,
        "topology": _same_optional(".?topology"),
        "elasticity.globalBatch": _same_optional(".?elasticity.?globalBatch"),
        "elasticity.maxGlobalBatch": _same_optional(".?elasticity.?maxGlobalBatch"),
        "elasticity.deterministic": f"{_is_deterministic('self')} == {_is_deterministic('oldSelf')}",
        "dataset and its epochs (by default passes)": _same_dataset(),
    }


def _same(path: str) -> str:
    return f"self.spec{path} == oldSelf.spec{path}"


def _same_optional(path: str) -> str:
    return f"[self.spec{path}] == [oldSelf.spec{path}]"


def _is_deterministic(version: str) -> str:
    return f"{version}.spec.?elasticity.?deterministic.orValue(false)"


def _same_dataset() -> str:
    """True if the master would get the same data set, including the epochs that it takes from the passes."""
    fields = (_same_optional(f".?dataset.?{name}") for name in _DATASET_FIELDS)
    epochs = f"!has(self.spec.dataset) || {_epochs('self')} == {_epochs('oldSelf')}"
    return f"({' && '.join(fields)} && ({epochs}))"


def _epochs(version: str) -> str:
    passes = f"{version}.spec.trainer.?passes.orValue({version}.spec.?passes.orValue(1))"
    return f"{version}.spec.?dataset.?epochs.orValue({passes})"


def _pods_exist() -> str:
    counts = [
        f"oldSelf.?status.?{role.value}.?{count}.orValue(0) > 0" for role in Role for count in ("ready", "pending")
    ]
    phases = [phase.value for phase in _PHASES_WITH_PODS]
    return " || ".join([f"oldSelf.?status.?phase.orValue('') in {phases}", *counts])
