"""How a workload that is no TrainingJob becomes a `Job`; `edl.kube.workloads` has the adapters that do it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from edl.kube.translate.objects import PodObject
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod


class WorkloadReader(Protocol):
    """Reads the objects of one kind; `Any` is the decoded object of that kind."""

    def key(self, source: Any) -> JobKey:  # noqa: ANN401 - see the class
        """Return the key of an object."""

    def is_elastic(self, source: Any) -> bool:  # noqa: ANN401 - see the class
        """Return True if the object asks to be resized; edl leaves every other object alone."""

    def problem(self, source: Any) -> str:  # noqa: ANN401 - see the class
        """Return why edl does not resize an object that asks for it, and the remedy; empty if it does.

        No plan changes its pods then, and they count in its queue until they are gone.

        Raises:
            ConfigError: a quantity of the object cannot be parsed.
        """

    def read(self, source: Any, pods: Collection[Pod], source_of: Callable[[Pod], PodObject], now_s: float) -> Job:  # noqa: ANN401 - see the class
        """Translate an object.

        Args:
            source: the object.
            pods: its pods, in any order.
            source_of: the object of a pod.
            now_s: the creation time of an object without one, in seconds since the epoch.

        Returns:
            The job. Its trainers have indexes in the reverse order in which their controller deletes them, and those
            that it is about to delete already are terminating.

        Raises:
            ConfigError: a quantity of the object cannot be parsed.
        """

    def templates(self, source: Any) -> Mapping[Role, PodObject]:  # noqa: ANN401 - see the class
        """Return what the controller of an object makes the pods of each role of, with the labels that it adds."""


WorkloadObject = tuple[WorkloadReader, Any]
"""A decoded object, and what reads it."""
