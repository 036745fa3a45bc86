"""The interface of an adapter for a kind of workload: it translates objects into jobs, and counts into patches.

The planner, the controller and the sentences know only `Job`. A further kind needs a module here, a line in
`registry`, a line in `edl.kube.translate.ownership.WORKLOAD_OWNERS`, its rights, and its tests.
"""

from __future__ import annotations

from typing import Any, Protocol

from edl.kube.translate.decoders import Decoder
from edl.kube.translate.objects import PodSpec
from edl.kube.translate.workload_reader import WorkloadReader
from edl.model.names import WorkloadKind


class MirroredKind(WorkloadReader, Protocol):
    """One kind of workload that edl reads."""

    @property
    def kind(self) -> WorkloadKind:
        """The kind; its value is the prefix of the keys."""

    @property
    def api(self) -> tuple[str, str, str]:
        """(apiVersion, kind, plural): `("batch/v1", "Job", "jobs")`."""

    @property
    def decoder(self) -> Decoder[Any]:
        """The decoder of the kind's objects."""

    def count(self, source: Any) -> int:  # noqa: ANN401 - the decoded object of the kind
        """How many pods the controller of the kind keeps now."""


class Adapter(MirroredKind, Protocol):
    """One kind of workload whose own controller creates and deletes the pods, and that edl resizes."""

    def patch(self, source: Any, count: int, victims: tuple[str, ...]) -> dict[str, Any] | list[dict[str, Any]]:  # noqa: ANN401 - as above
        """Return the JSON patch by which the workload's controller keeps another number of pods.

        Args:
            source: the object.
            count: how many pods it should keep.
            victims: the names of the pods that go, by the indexes of `read`; for a controller that takes names.

        Returns:
            The spec of a merge patch; or the operations of a JSON patch, if a merge patch cannot say it.
        """

    def surplus(self, source: Any, count: int) -> tuple[str, ...]:  # noqa: ANN401 - as above
        """The names of the pods to mark before the workload's controller deletes them for a resize."""

    def mark(self, source: Any, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ANN401 - as above
        """Return the JSON patch that marks a pod for deletion, or removes the mark.

        It fails for a pod of another owner.
        """


class SuspendingAdapter(Adapter, Protocol):
    """One kind for which edl makes the Workloads of Kueue: its controller starts no pod of a suspended object."""

    @property
    def template_path(self) -> tuple[str, ...]:
        """The path of the pod template in the spec."""

    def template(self, source: Any) -> PodSpec:  # noqa: ANN401 - as above
        """Return the pod template of the object, as it is stored."""

    def start_s(self, source: Any) -> float | None:  # noqa: ANN401 - as above
        """Return when the object was started, if the API server accepts no other template after that; else None."""
