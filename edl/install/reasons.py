"""What each reason, condition and intent means, and what to do about it; docs/reference/conditions.md is made of it.

A test fails if the code uses a reason that is not explained here. Links are relative to docs/reference.
"""

from __future__ import annotations

Rows = tuple[tuple[str, ...], ...]

COUNT: Rows = (
    (
        "`Admitted`",
        "in `lastResize` and metrics: the job was just admitted, or others gave trainers for an admitted job",
        "nothing",
    ),
    ("`AtMax`", "it has its `max-instance`", "raise `max-instance` if more trainers would help"),
    (
        "`InsufficientCapacity`",
        "it runs below its maximum; the line names what is full, the account also who holds it",
        "wait, add nodes, or run `edl explain`",
    ),
    (
        "`MinUnsatisfied`",
        "it waits: there is no capacity for its minimum, or it waits behind an older job",
        "lower `min-instance`, raise `priority`, or wait",
    ),
    (
        "`Unschedulable`",
        "its minimum would not fit even without other jobs, or no node takes its master or more of its trainers, as "
        "a rule or kube-scheduler says; the line names the pod and what it lacks",
        "request less, or add a node that can hold it; check selectors, taints, rules between pods and volumes",
    ),
    (
        "`ServingNeedsRoom`",
        "its trainers yielded to serving",
        "nothing: it grows again 30 s after serving has shrunk",
    ),
    (
        "`QuotaReached`",
        "its queue has reached its quota, or its namespace a ResourceQuota",
        "another queue, or a larger quota (the Queue object, or `--queues`)",
    ),
    (
        "`PodsNotStarted`",
        "trainers of the job fail or do not start, so it keeps its minimum and does not grow until one has run; the "
        "condition `Degraded` says why. `PodCannotStart`, `PodFailed`, `PodRejected` and "
        "`PodDeleted` in this place mean the same",
        "correct what the condition names",
    ),
    (
        "`PodsDoNotEnd`",
        "a pod of the job was deleted and is overdue by 30 s, or has more than ten minutes to end, on a node that is "
        "ready. The pod still uses its capacity, so the job gets no more trainers",
        "remove the finalizer, or shorten `terminationGracePeriodSeconds`",
    ),
    (
        "`PodsRefused`",
        "the API server rejects its pods; the line names the policy, the condition `Degraded` has the answer",
        "change the policy or the spec; edl asks again by itself",
    ),
    (
        "`QueueNotAllowed`",
        "the job's namespace may not use the queue in `spec.queue` (`--tenants`)",
        "another queue, or ask the operator",
    ),
    (
        "`BestEffortNotAllowed`",
        "its trainers request neither cpu nor memory, and its queue does not allow that",
        "set `spec.trainer.resources`, or `bestEffort: Allowed` in the Queue object or the file of `--queues`",
    ),
    (
        "`Pinned`",
        "`kubectl scale` fixed the count; a count that does not fit has the reason for that, and the line says "
        "`34 asked, 26 fit`",
        "`kubectl scale --replicas=0` lets edl choose again",
    ),
    (
        "`Cooldown`",
        "there is capacity, but this job, or the one that would have to give, was resized lately",
        "wait; `edl explain` prints how long",
    ),
    (
        "`LendingCleared`",
        "serving used the CPU of trainers that lend for `--clear-lending-after-s`; they are deleted so that "
        "the others have what they declare",
        "nothing; they start again where there is capacity",
    ),
    (
        "`NodeIdle`",
        "only trainers above their minimum held a node of an expected group for `--drain-idle-s`; they are deleted "
        "so that the autoscaler removes the node",
        "nothing; or `spec.elasticity.scaleUp: Full`, which keeps such nodes",
    ),
    (
        "`ResizeNotWorthIt`",
        "more trainers would be faster, but the restarts cost more",
        "nothing; or correct `elasticity.resizeCostSeconds`",
    ),
    (
        "`InvalidSpec`",
        "the spec breaks a rule although admission let it pass; the job gets no pods",
        "correct what the line names; edl checks each new generation again",
    ),
    (
        "`NotResized`",
        "a [workload of another kind](../batch-jobs.md) asks to be resized and cannot be; it keeps its pods, and its "
        "queue counts them",
        "correct what the line names",
    ),
    (
        "`Finishing`",
        "a pod of a [workload of another kind](../batch-jobs.md) has ended and its controller starts no other; it "
        "keeps its pods, and its queue counts them until they have ended",
        "nothing",
    ),
    ("`Suspended`", "`spec.suspend` is true", "set it to false"),
    ("`Finished`", "it succeeded, or it is being deleted; in a plan, also that it failed", "nothing"),
)
"""Rows of reason, meaning, what to do."""

FAILED: Rows = (
    (
        "`BackoffLimitExceeded`",
        "more of its pods failed than `backoffLimit` allows; lost, evicted and preempted pods do not count",
        "read the logs of the failed pods, which edl keeps",
    ),
    (
        "`DeadlineExceeded`",
        "it ran longer than `activeDeadlineSeconds`",
        "raise the limit, or give the job more trainers",
    ),
    ("`Aborted`", "a policy of the job has the action `AbortJob`", "the message names event, role and pods"),
    (
        "`TooManyQuarantined`",
        "more of the data than `dataset.maxQuarantinedFraction` failed repeatedly",
        "read the logs of the trainers; `edl audit` names the records",
    ),
    (
        "`LedgerLost`",
        "the journal is empty although the status shows progress",
        "restore the journal and create the job again; `master.storage` keeps it on a volume",
    ),
    ("`InvalidSpec`", "see above", ""),
)
"""Rows of reason, meaning, what to do."""

DEGRADED: Rows = (
    (
        "`Forbidden`",
        "the API server rejected a write: a ResourceQuota of the namespace, Pod Security, an admission "
        "policy, or a right that the controller lost",
        "the message is from the API server; edl retries after 5, 10, ... 300 s",
    ),
    (
        "`Invalid`, `InternalError`, `BadRequest`",
        "the API server or a webhook rejects the write, or the webhook cannot be reached",
        "as above",
    ),
    (
        "`Unavailable`",
        "the API server fails at each creation of a pod of the job, and at nothing else: it breaks off, or answers "
        "5xx, as a policy or a webhook may make it",
        "the message quotes the API server: look at the policies and webhooks for pods",
    ),
    (
        "`NameTaken`",
        "an object that the job does not own has the name of one of its objects, such as a pod that "
        "`kubectl delete tj --cascade=orphan` left of a former job",
        "delete that object, or give the job another name",
    ),
    (
        "`PriorityClassMissing`",
        "a PriorityClass of edl does not exist: trainers have the next higher one, so serving preempts them in "
        "another order; without any that fits, pods have none, and serving does not preempt them",
        "`kubectl apply -f deploy/base/priorityclasses.yaml`",
    ),
    (
        "`PodsNotStarted`",
        "pods exist for two minutes and have not started, and their kubelets do not say why; the message has their "
        "names and the node of the first one. If no trainer has started, the job keeps its minimum alone",
        "`kubectl describe pod` has the events: a large image, a volume that cannot be attached, a network that is "
        "not ready, or a node that does not start pods",
    ),
    (
        "`PodsDoNotEnd`",
        "pods have been deleted and are overdue by 30 s, and the job waits for their end: a gang for each pod of its "
        "last run, any job for a master or a pserver, whose successor has its name, and for a pod of a former job of "
        "its name",
        "remove the finalizer that holds the pod. If its node does not answer, switch it off and then delete the pod "
        "with `--force`: two runs of a gang would spoil its model",
    ),
    (
        "`PodRejected`",
        "a node rejected a pod before any container of it ran, such as `UnexpectedAdmissionError` or `OutOfcpu`; the "
        "message has the words of the kubelet and the node. That is no failure of the job",
        "edl tries again after growing pauses, on other nodes if it can; look at the node if it is always the same",
    ),
    (
        "`PodDeleted`",
        "somebody else deleted pods of a name within a minute of their creation, at least twice in a row",
        "edl creates them again after growing pauses; find the program that deletes them, such as one that ends pods "
        "which break a rule, and exempt the pods of the job",
    ),
    (
        "`PodCannotStart`",
        "a pod cannot start: an image cannot be pulled, or a Secret or a volume claim does not exist; "
        "`status.reason` has this reason too, instead of `AtMax` and `InsufficientCapacity`",
        "the message names the cause; `kubectl describe pod` has the details",
    ),
    (
        "`PodFailed`",
        "pods of it fail and are replaced, until each of its pods has run for a minute; a job that has its "
        "`max-instance` has this reason in `status.reason` too, instead of `AtMax`",
        "the message has the exit code, the last line of the log and the number of failures so far; `edl logs JOB` "
        "shows more",
    ),
    (
        "`LedgerNotDurable`",
        "the journal is on an emptyDir and is deleted with the master's pod",
        "`master.storage`, or a default StorageClass",
    ),
    (
        "`CheckpointsNotDurable`",
        "`EDL_CHECKPOINTS` names a folder without a volume, or an emptyDir: checkpoints and the model are deleted "
        "with the pod",
        "suspend the job, and [mount a volume](../how-to/get-the-trained-model-out.md) there",
    ),
    (
        "`JournalBlocked`",
        "the journal cannot be written: its disk is full",
        "free space on the volume; training resumes automatically",
    ),
    ("`MasterFailing`", "the master exited and is started again", "its last message is in the condition"),
    (
        "`TrainerHangs`",
        "a trainer that trains in step hangs, and the others went on without it: its process is stopped, its "
        "node does not answer, or its loop does not end a step",
        "`edl logs JOB`; edl replaces it after 120 s; if it is always the same node, cordon it, or set "
        "`--avoid-nodes-after`",
    ),
    (
        "`NodeAvoided`",
        "its trainers, and those of other jobs, failed or hung on a node on which no new trainer starts for a while "
        "(`--avoid-nodes-after`)",
        "check the node: [a node breaks trainers](../troubleshooting.md#a-node-breaks-trainers); a trainer is tried "
        "there by itself",
    ),
    ("`RecordsQuarantined`", "some records failed repeatedly and are left out", "`edl audit` names them"),
    ("`AsExpected`", "nothing is wrong", ""),
)
"""Rows of reason of condition Degraded, meaning, what to do."""

CONDITIONS: Rows = (
    ("`Running`", "`Restarting`", "edl deletes every pod before the job starts again"),
    (
        "",
        "`TrainerRunsAgain`, `PserverRunsAgain`, `MasterRunsAgain`",
        "the pods of that role exited 0, and a policy starts them again",
    ),
    ("", "the phase (`Pending`, `Creating`, `Running`, `Scaling`, `Suspended`, `Succeeded`, `Failed`)", ""),
    ("`Resizing`", "`Settled`", "the number of trainers is not changing; else the reason of the change"),
    ("`Complete`", "`NotFinished`, `Finishing`", "no trainer, or some, exited 0"),
    ("", "`TrainerLost`", "the last trainer was lost before it finished; edl replaces it"),
    ("`Failed`", "`NotFailed`", ""),
)
"""Rows of condition, reasons, meaning."""

INTENTS: Rows = (
    ("`PodFailed/3`", "the pod failed; this was the third failure"),
    ("`NodeLost`", "its node was lost"),
    ("`Restart`", "the whole job restarts"),
    (
        "`Moved`",
        "a pserver moves, or a trainer frees capacity for one:"
        " [fragmented capacity](../controller.md#fragmented-capacity)",
    ),
    ("`Hung`", "the trainer hung for 120 s (condition Degraded, `TrainerHangs`)"),
    (
        "`NotStarted`",
        "the trainer never began, and others of the job have finished, so nothing is left for it",
    ),
    ("`Replaced`", "a policy replaces the pod that ended, or the count was lowered"),
    ("`JobFailed`", "the job failed"),
    ("`JobDeleted`", "the job was deleted, and a finalizer keeps it"),
)
"""Rows of value of the annotation, meaning."""
