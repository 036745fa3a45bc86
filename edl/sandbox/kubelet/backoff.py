"""How long the kubelet waits before it starts a container again or looks for an image again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CrashBackoff:
    """Pauses of 0, 10, 20, 40... seconds up to five minutes; ten minutes without a crash start over.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy

    Attributes:
        first_s, longest_s, healthy_s: the first pause after an immediate restart, the longest pause, and how long a
            container must run so that its crashes are forgotten; in seconds.
    """

    first_s: float = 10.0
    longest_s: float = 300.0
    healthy_s: float = 600.0
    _crashes: int = 0

    def after_run(self, ran_s: float) -> float:
        """The pause after a run of that many seconds."""
        if ran_s >= self.healthy_s:
            self._crashes = 0
        self._crashes += 1
        return 0.0 if self._crashes == 1 else min(self.longest_s, self.first_s * 2.0 ** (self._crashes - 2))
