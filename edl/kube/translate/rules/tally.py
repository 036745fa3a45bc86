"""Counts the pods of one rule by domain, and how many each domain may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edl.kube.translate.rules.view import Unit, domain_words
from edl.model.resources import TAKES_NO_MORE


@dataclass(slots=True)
class Tally:
    """The pods that one rule counts, by domain, and how many each domain may have.

    Attributes:
        key: the label of nodes that makes domains; empty if the whole cluster is one.
        words: what the rule says.
        most: so many pods in each domain; None if the skew decides.
        skew: so many more than the emptiest domain.
        min_domains: with fewer domains the emptiest one counts as empty.
        counted: the domains among which the emptiest one is looked for.
        have: how many pods each domain has.
        units: the pods that the rule counts and that a plan places.
        capacity, given: of a rule by node, how many more pods each domain takes before any waiting pod has a node,
        and
            how many of these it was given.
        is_beyond: a domain was given more, because the emptiest one had grown by then.
    """

    key: str
    words: str
    most: int | None = None
    skew: int = 0
    min_domains: int = 1
    counted: frozenset[str] = frozenset()
    have: Counter[str] = field(default_factory=Counter)
    units: list[Unit] = field(default_factory=list)
    capacity: dict[str, int] | None = None
    given: Counter[str] = field(default_factory=Counter)
    is_beyond: bool = False

    @property
    def lowest(self) -> int:
        """How many pods the emptiest domain has."""
        if len(self.counted) < self.min_domains:
            return 0
        return min((self.have[domain] for domain in self.counted), default=0)

    def level(self) -> int:
        """How many pods a domain may have now."""
        return self.most if self.most is not None else self.lowest + self.skew

    def words_at(self, level: int, final: Mapping[str, int]) -> str:
        """Describe the rule for a message, with the domain that limits it if running pods do not matter.

        Args:
            level: how many pods a domain may have now.
            final: how many each domain that counts can have.
        """
        first = min(final, key=lambda domain: (final[domain], domain), default="")
        has_enough = len(final) >= max(2, self.min_domains)
        if self.most is not None or not has_enough or level < final[first] + self.skew:
            return self.words
        return f"{self.words}, and {domain_words(self.key)} {first} {TAKES_NO_MORE} {final[first]}"

    def admitting(self, domains: Iterable[str], *, is_counted: bool) -> set[str]:
        """Return the domains that take one more pod, which the rule may count or not."""
        most = self.level() - is_counted
        return {domain for domain in domains if self.have[domain] <= most}
