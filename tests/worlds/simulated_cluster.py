"""A cluster simulated in virtual time, behind the interface of the controller.

Actions, and the simulated kubelets, scheduler and garbage collector (`live`), change the true objects of
`simulated_objects`. Every action that breaks a rule is noted in `violations`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.lifecycle.broken_nodes import excluding
from edl.lifecycle.pod_events import is_deleted_with_job
from edl.model.actions import (
    Action,
    CreatePod,
    DeleteJob,
    DeletePod,
    EmitEvent,
    MarkPod,
    Outcome,
    PatchStatus,
    ProbePod,
    ResizeWorkload,
    Result,
)
from edl.model.jobs import Job
from edl.model.names import Role, WorkloadKind
from edl.model.pods import Pod, PodPhase
from edl.model.resources import POD_OBJECTS, PodShape
from edl.planner.eligibility import is_selected
from edl.planner.quota import pod_use
from tests.worlds.job_owner import resized
from tests.worlds.simulated_objects import GRACE_S, Objects, Owned, Stored, now_s

STRANDED_S = 30.0
GC_S = 60.0
"""So long after its end a pod is gone whose node does not exist, by the garbage collector of pods."""


class World(Objects):
    """The cluster: what its parts do by themselves, and what its API server does."""

    # --- What the cluster does by itself

    def live(self) -> None:
        """Let scheduler, kubelets and garbage collector do what they can now."""
        for key, stored in list(self.jobs.items()):
            made, doomed = self.job_owner.step(self.job(key), now_s())
            for pod in made:
                self._put_pod(Owned(pod, stored.job.uid))
            for pod in doomed:
                self.take_away(pod.name, "")
        uids = {stored.job.uid for stored in self.jobs.values()}
        for (namespace, name), owned in list(self.pods.items()):
            pod = owned.pod
            if owned.owner not in uids and not pod.terminating:
                self._put_pod(
                    replace(owned, pod=replace(pod, terminating=True, ready=False), ends_s=now_s() + GRACE_S)
                )
            elif pod.terminating:
                node, late_s = self.nodes.get(pod.node), now_s() - (owned.ends_s or 0.0)
                is_ended = not pod.node or (late_s >= GC_S if node is None else node.ready and late_s >= 0.0)
                if is_ended or pod.is_finished:
                    self._drop_pod(namespace, name)
            elif pod.phase is PodPhase.PENDING:
                self._start(owned)
            elif pod.phase is PodPhase.RUNNING and now_s() - (pod.started_s or 0.0) >= self.crash_s(pod):
                self.finish(name, exit_code=1)
        for name, pod in list(self.serving.items()):
            if not pod.node and not self.holds_serving and (place := self._node_for(pod.shape, "")):
                self.serving[name] = replace(pod, node=place, phase=PodPhase.RUNNING, ready=True)
                self.changed.set()

    def _start(self, owned: Owned) -> None:
        pod = owned.pod
        if not pod.node and self._waits_for_its_gang(owned):
            return
        if not pod.node:
            place = self._node_for(pod.shape, pod.planned)
            if place and (place == pod.planned or not pod.pinned):
                self._put_pod(replace(owned, pod=replace(pod, node=place, tried=False)))
            elif not pod.tried:
                self._put_pod(replace(owned, pod=replace(pod, tried=True, answered_s=now_s())))
        elif (changed := self.fate(pod)) is not None:
            if replace(pod, **changed) != pod:
                self._put_pod(replace(owned, pod=replace(pod, **changed)))
        elif (node := self.nodes.get(pod.node)) is not None and node.ready:
            self._put_pod(replace(owned, pod=replace(pod, phase=PodPhase.RUNNING, ready=True, started_s=now_s())))

    def _waits_for_its_gang(self, owned: Owned) -> bool:
        """True if Volcano leaves the pod without a node, because the minimum of its job does not fit as a whole."""
        if owned.pod.job is None or owned.pod.job.kind is not WorkloadKind.VOLCANO_JOB:
            return False
        job = self.job(owned.pod.job)
        gang = [p for p in job.pods if p.role is not Role.TRAINER or (p.index or 0) < job.min_trainers]
        free = {n: node.allocatable - self._held(n) for n, node in self.nodes.items() if node.ready}
        for pod in gang:
            if pod.node or not pod.is_live:
                continue
            name = next((n for n in sorted(free) if pod.shape.request.fits(free[n])), None)
            if name is None:
                return True
            free[name] = free[name] - pod.shape.request
        return False

    def _node_for(self, shape: PodShape, planned: str) -> str:
        """The node that the scheduler chooses: the planned one if the pod fits, else any other."""
        for name in sorted(self.nodes, key=lambda n: (n != planned, n)):
            node = self.nodes[name]
            if (
                node.ready
                and not node.cordoned
                and name not in self.shut
                and is_selected(node, shape.placement)
                and shape.request.fits(node.allocatable - self._held(name))
            ):
                return name
        return ""

    def _held(self, node: str) -> Any:
        pods = [o.pod for o in self.pods.values()] + list(self.serving.values())
        held = self.nodes[node].reserved
        for pod in pods:
            if pod.node == node and not pod.is_finished:
                held = held + pod.shape.request
        return held

    # --- The API

    def apply(self, action: Action, *, is_judged: bool = False) -> Outcome:
        """Carry out an action as edl.kube and the API server do; judge it first, unless that was done before."""
        if not is_judged:
            self.judge(action)
        faulty = self.fault(action)
        if faulty is not None and not faulty[0]:
            return faulty[1]
        refused = self._over_quota(action) if isinstance(action, CreatePod | ProbePod) else ""
        outcome = Outcome(action, Result.REFUSED, "Forbidden", refused) if refused else self._apply(action)
        if outcome.result is Result.DONE:
            self.writes.append(action)
        if faulty is not None:
            return faulty[1]
        answers = isinstance(action, CreatePod | MarkPod | DeletePod) and outcome.result is Result.UNCHANGED
        if outcome.result is Result.DONE or answers:
            self._answer(action)
        return outcome

    def _answer(self, action: Action) -> None:
        """The controller stores the object of the answer."""
        match action:
            case CreatePod():
                self.take_answer("pod", (action.job.namespace, action.pod_name))
            case MarkPod() | DeletePod():
                self.take_answer("pod", (action.job.namespace, action.pod))
            case PatchStatus() | ResizeWorkload() | DeleteJob():
                self.take_answer("job", action.job)

    def _apply(self, action: Action) -> Outcome:
        seen = self.seen_jobs.get(action.job)
        if seen is None or seen.job.uid != action.job_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "the job is another one now")
        match action:
            case CreatePod():
                return self._create(action, seen.job)
            case MarkPod() | DeletePod():
                return self._delete(action)
            case PatchStatus() | ResizeWorkload():
                return self._patch(action, seen) if isinstance(action, PatchStatus) else self._resize(action, seen)
            case EmitEvent():
                self.events.append(action)
            case DeleteJob():
                self.delete_job(action.job)
            case _:
                return Outcome(action, Result.UNCHANGED)
        return Outcome(action, Result.DONE)

    def _over_quota(self, action: CreatePod | ProbePod) -> str:
        """The API server's words for a pod beyond the quota of its namespace; terminating pods count."""
        quota = self.quotas.get(action.job.namespace)
        if quota is None or action.job not in self.jobs:
            return ""
        job = self.jobs[action.job].job
        shape = next((f.shape for f in job.fixed if f.role is action.role), job.trainer)
        pods = [o.pod for (namespace, _), o in self.pods.items() if namespace == action.job.namespace]
        for resource, hard in quota.hard:
            counts_all = resource == POD_OBJECTS
            present = [pod for pod in pods if counts_all or not pod.is_finished]
            used = sum(pod_use(resource, pod.shape, pod.limits) for pod in present)
            if used + dict(quota.others).get(resource, 0) + pod_use(resource, shape, job.limits) > hard:
                return (
                    f'pods "{action.pod_name}" is forbidden: exceeded quota: {quota.name}, requested: {resource}=...'
                )
        return ""

    def _create(self, action: CreatePod, job: Job) -> Outcome:
        key = (action.job.namespace, action.pod_name)
        there = self.pods.get(key)
        if there is not None:
            is_ours = there.owner == action.job_uid and not there.pod.terminating
            return Outcome(action, Result.UNCHANGED if is_ours else Result.CONFLICT, "Conflict")
        self.born += 1
        shape = next((f.shape for f in job.fixed if f.role is action.role), job.trainer)
        pod = Pod(
            namespace=key[0],
            name=key[1],
            uid=f"pod-{self.born}",
            shape=excluding(shape, action.avoided) if action.avoided else shape,
            planned=action.node or "",
            pinned=action.pinned,
            created_s=now_s(),
            priority=_priority(action, job),
            job=action.job,
            role=action.role,
            index=action.index,
        )
        self.owners[pod.uid] = action.job_uid
        self._put_pod(Owned(pod, action.job_uid))
        return Outcome(action, Result.DONE)

    def _delete(self, action: MarkPod | DeletePod) -> Outcome:
        key = (action.job.namespace, action.pod)
        owned = self.pods.get(key)
        if owned is None:
            return Outcome(action, Result.UNCHANGED)
        if owned.pod.uid != action.pod_uid:
            return Outcome(action, Result.CONFLICT, "Conflict", "another pod")
        if not (isinstance(action, DeletePod) and action.marked):
            owned = replace(owned, pod=replace(owned.pod, intent=action.intent))
            self._put_pod(owned)
        if isinstance(action, DeletePod):
            if action.force or owned.pod.is_finished or not owned.pod.node:
                self._drop_pod(*key)
            else:
                gone = replace(owned.pod, terminating=True, ready=False)
                self._put_pod(replace(owned, pod=gone, ends_s=now_s() + GRACE_S))
        return Outcome(action, Result.DONE)

    def _patch(self, action: PatchStatus, seen: Stored) -> Outcome:
        stored = self.jobs.get(action.job)
        if stored is None or stored.version != seen.version:
            return Outcome(action, Result.CONFLICT, "Conflict", "the object has been modified")
        if stored.job.status == action.status:
            return Outcome(action, Result.UNCHANGED)
        self._put_job(replace(stored.job, status=action.status))
        return Outcome(action, Result.DONE)

    def _resize(self, action: ResizeWorkload, seen: Stored) -> Outcome:
        stored = self.jobs.get(action.job)
        if stored is None or stored.version != seen.version:
            return Outcome(action, Result.CONFLICT, "Conflict", "the object has been modified")
        outcome, job = resized(action, stored.job)
        if outcome.result is Result.DONE:
            self._put_job(job)
        return outcome

    def judge(self, action: Action) -> None:
        """Note an action that breaks a rule, whether the API server would refuse it or not."""
        if isinstance(action, MarkPod | DeletePod) and self.owners.get(action.pod_uid) != action.job_uid:
            self.violations.append(f"{action} touches a pod that is not the job's")
        if isinstance(action, CreatePod):
            seen = self.seen_pods.get((action.job.namespace, action.pod_name))
            if seen is not None and seen.owner == action.job_uid:
                self.violations.append(f"{action} takes a name that is in use")
            if action.job in self.seen_jobs:
                self._judge_creation(action, self._with_pods(self.seen_jobs[action.job].job, self.seen_pods))

    def _judge_creation(self, action: CreatePod, job: Job) -> None:
        if job.suspended or job.problem or job.finished:
            self.violations.append(f"{action} for a job that must have no pods")
        if job.fault_tolerant or job.policies:
            return
        if any(p.terminating or p.phase is PodPhase.FAILED or is_deleted_with_job(p) for p in job.pods):
            self.violations.append(f"{action} beside pods of the gang's last run")
        if action.role is Role.TRAINER and action.index >= job.min_trainers:
            self.violations.append(f"{action} has a rank beyond the size of the gang")


def _priority(action: CreatePod, job: Job) -> int:
    """That of the PriorityClass of a pod."""
    is_surplus = action.role is Role.TRAINER and action.index >= job.min_trainers and not action.is_base
    return -100 if is_surplus else -5
