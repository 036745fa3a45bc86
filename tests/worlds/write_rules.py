"""What holds for the writes of one controller, whatever changes while they are under way.

Every write begins with the lease held. No write begins while those of another round are under way, no pod is created
while one is being deleted or before it, and nothing of an old plan begins once a newer one is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from edl.controller.pace import Pace
from edl.model.actions import Action, CreatePod, DeletePod, EmitEvent, MarkPod, ProbePod

DEBOUNCE_S = Pace().debounce_s
NOTICED_S = 0.25
"""The pool looks every 0.1 s whether a newer plan is due."""


@dataclass
class WriteRules:
    """Judges each write when it begins.

    Args:
        holds_lease: whether the controller may write now.
        now_s: the time.

    Attributes:
        broken: a line for each write that broke a rule.
        are_plans_slow: the round answers jobs while it plans and in pauses, so its writes come in another order.
    """

    holds_lease: Callable[[], bool]
    now_s: Callable[[], float]
    broken: list[str] = field(default_factory=list)
    are_plans_slow: bool = False
    _round: int = 0
    _began_s: float = 0.0
    _wrote_s: float | None = None
    _urged_s: float | None = None
    _has_created: bool = False
    _under_way: list[tuple[int, Action]] = field(default_factory=list)

    def begin_round(self) -> None:
        """A round begins."""
        self._round += 1
        self._began_s, self._wrote_s, self._urged_s, self._has_created = self.now_s(), None, None, False

    def urge(self) -> None:
        """Something has changed that cannot wait."""
        self._urged_s = self._urged_s or self.now_s()

    @contextmanager
    def writing(self, action: Action) -> Iterator[None]:
        """Judge a write at its beginning, and know until its end that it is under way."""
        if self._wrote_s is None and not isinstance(action, ProbePod):
            self._wrote_s = self.now_s()
        self.broken += [f"{type(action).__name__} of {action.job} {rule}" for rule in self._wrong(action)]
        self._has_created |= isinstance(action, CreatePod)
        entry = (self._round, action)
        self._under_way.append(entry)
        try:
            yield
        finally:
            self._under_way = [one for one in self._under_way if one is not entry]

    def _wrong(self, action: Action) -> Iterator[str]:
        if not self.holds_lease():
            yield "begins without the lease"
        if any(number != self._round for number, _ in self._under_way):
            yield "begins while writes of another round are under way"
        ends = [one for _, one in self._under_way if isinstance(one, DeletePod | MarkPod)]
        if isinstance(action, CreatePod) and ends:
            yield f"begins while {len(ends)} pods are being deleted"
        if isinstance(action, DeletePod) and any(isinstance(one, CreatePod) for _, one in self._under_way):
            yield "begins while pods are being created"
        if isinstance(action, DeletePod) and self._has_created and not self.are_plans_slow:
            yield "comes after a creation of the same round"
        if self._is_dropped(action):
            yield "is sent although a newer plan is due"

    def _is_dropped(self, action: Action) -> bool:
        """True if a newer plan was due before; the events of a status belong to the write of the status."""
        if self._urged_s is None or self._wrote_s is None or isinstance(action, EmitEvent | ProbePod):
            return False
        if self.are_plans_slow:  # what was thought is owed to writing
            return False
        least_s = max(DEBOUNCE_S, self._wrote_s - self._began_s)
        due_s = max(self._urged_s + DEBOUNCE_S, self._wrote_s + least_s)
        return self.now_s() > due_s + NOTICED_S
