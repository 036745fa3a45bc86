"""Finds the rules of the pods that a job gets in a role: from its manifest, a pod that it has, or its template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from edl.kube.translate.objects import PodObject, PodSpec
from edl.kube.translate.rules.facts import Claim
from edl.kube.translate.rules.terms import PodRules, has_rules, has_terms, rules_of
from edl.kube.translate.workload_reader import WorkloadObject
from edl.model.jobs import Job
from edl.model.names import JobKey, Role
from edl.model.pods import Pod


@dataclass(frozen=True, slots=True)
class _Templates:
    """The pod templates of a workload's own controller."""

    source: object
    pods: Mapping[Role, PodObject]
    has_rules: bool
    has_terms: bool


class RoleRules:
    """The rules of the roles of all jobs; what has not changed is read once.

    Args:
        manifest_of: gives the pod that edl would create for a role of a TrainingJob; None for other jobs.
        source_of: gives the object of a pod.
        shared: gives the one object for equal rules.
    """

    def __init__(
        self,
        manifest_of: Callable[[JobKey, Role], PodObject | None],
        source_of: Callable[[Pod], PodObject],
        shared: Callable[[PodRules], PodRules],
    ) -> None:
        self._manifest_of, self._source_of, self._shared = manifest_of, source_of, shared
        self._no_rules = PodRules("")
        self._known: dict[tuple[JobKey, Role], tuple[PodObject, Claim | None, PodRules]] = {}
        self._templates: dict[JobKey, _Templates] = {}

    def note(self, workloads: Mapping[JobKey, WorkloadObject]) -> None:
        """Take the workloads of a snapshot that are not TrainingJobs."""
        known, self._templates = self._templates, {}
        for key, (reader, source) in workloads.items():
            found = known.pop(key, None)
            if found is None or found.source is not source:
                pods = reader.templates(source)
                specs = [pod.spec or PodSpec() for pod in pods.values()]
                found = _Templates(source, pods, any(map(has_rules, specs)), any(map(has_terms, specs)))
            self._templates[key] = found
        for key in known:
            self.forget(key)

    def forget(self, key: JobKey) -> None:
        """Forget a job that no longer exists."""
        for role in Role:
            self._known.pop((key, role), None)

    def has_rules(self) -> bool:
        """True if a template requires something of the pods or the volumes beside its pods."""
        return any(one.has_rules for one in self._templates.values())

    def has_terms(self) -> bool:
        """True if a template requires something of the pods beside its pods."""
        return any(one.has_terms for one in self._templates.values())

    def of(self, job: Job, role: Role, claim: Claim | None) -> PodRules:
        """The rules of the pods that a job gets in a role.

        Args:
            job: the job.
            role: the role.
            claim: one that the pod uses besides those in its manifest.
        """
        source = self._source(job, role)
        if source is None:
            return self._no_rules
        known = self._known.get((job.key, role))
        if known is None or known[0] is not source or known[1] != claim:
            rules = rules_of(source, job.key.namespace, is_manifest=True)
            if claim is not None:
                rules = replace(rules, claims=tuple(sorted({*rules.claims, claim[1]})))
            self._known[job.key, role] = known = (source, claim, rules)
        return self._shared(known[2])

    def _source(self, job: Job, role: Role) -> PodObject | None:
        """The pod or template from which the rules of new pods are read.

        Pods of a workload have additional labels.
        """
        if (manifest := self._manifest_of(job.key, role)) is not None:
            return manifest
        pod = next((pod for pod in job.pods if pod.role is role and pod.is_live), None)
        if pod is not None:
            return self._source_of(pod)
        template = self._templates.get(job.key)
        return template.pods.get(role) if template is not None else None
