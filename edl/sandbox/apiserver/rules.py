"""The rules that every write is checked against, besides those of its kind."""

from __future__ import annotations

from edl.sandbox.apiserver.cluster import Cluster
from edl.sandbox.apiserver.kinds.kind import Object
from edl.sandbox.apiserver.writing import Write


class Rules:
    """The rules of schemas and admission policies."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check(self, write: Write, value: Object, old: Object | None) -> None:
        """Refuse an object that breaks a rule.

        Raises:
            ApiError: 403 or 422.
        """
