"""What an adapter of a kind does: it turns an object into a `Job` of the model, and a count into a patch.

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
        """Decodes the objects."""

    def count(self, source: Any) -> int:  # noqa: ANN401 - the decoded object of the kind
        """How many pods the controller of the kind keeps now."""


class Adapter(MirroredKind, Protocol):
    """One kind of workload whose own controller creates and deletes the pods, and that edl resizes."""

    def patch(self, source: Any, count: int, victims: tuple[str, ...]) -> dict[str, Any] | list[dict[str, Any]]:  # noqa: ANN401 - as above
        """With what that controller keeps another number of pods.

        Args:
            source: the object.
            count: how many pods it should keep.
            victims: the names of the pods that go, by the indexes of `read`; for a controller that takes names.

        Returns:
            The spec of a merge patch; or the operations of a JSON patch, if a merge patch cannot say it.
        """

    def surplus(self, source: Any, count: int) -> tuple[str, ...]:  # noqa: ANN401 - as above
        """The names of the pods that have to be marked before that controller deletes them for a resize."""

    def mark(self, source: Any, *, is_surplus: bool) -> list[dict[str, Any]]:  # noqa: ANN401 - as above
        """The JSON patch that marks such a pod, or takes its mark away; it fails for a pod of another owner."""


class SuspendingAdapter(Adapter, Protocol):
    """One kind for which edl makes the Workloads of Kueue: its controller starts no pod of a suspended object."""

    @property
    def template_path(self) -> tuple[str, ...]:
        """Where the pod template is in the spec."""

    def template(self, source: Any) -> PodSpec:  # noqa: ANN401 - as above
        """Return what its pods are made of, as it is stored."""

    def start_s(self, source: Any) -> float | None:  # noqa: ANN401 - as above
        """Return when it was started, if that keeps the API server from accepting another template; else None."""
