"""Invalid, odd and malicious TrainingJobs, each with its verdict: one table for `parse_job` and a real API server.

Both must give the same verdict. If the API server accepted a job that `parse_job` refuses, the job would be stored
but never run.
"""

from __future__ import annotations

from tests.worlds.hostile.manifests import (
    Case,
    accepted,
    amounts,
    container,
    edited,
    make_manifest,
    refused,
    renamed,
    requests,
    template,
    term,
    trainer,
    with_affinity,
    with_ports,
    with_sidecars,
    with_spec,
    without,
)
from tests.worlds.hostile.topologies import TOPOLOGIES

GPU = "nvidia.com/gpu"
OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
SIZE = {"cpu": "1", "memory": "1Gi"}

_BOUNDS = [
    refused("no spec", without("spec"), "spec is missing", "spec: Required"),
    refused("no trainer", edited(trainer=None), "spec.trainer is missing", "spec.trainer: Required"),
    refused("min is -1", trainer(min_instance=-1), "min-instance -1 is below 1", "greater than or equal to 1"),
    refused("min is 0", trainer(min_instance=0), "min-instance 0 is below 1", "greater than or equal to 1"),
    refused("no min", trainer(min_instance=None), "min-instance is missing", "min-instance: Required"),
    refused("no max", trainer(max_instance=None), "max-instance is missing", "max-instance: Required"),
    refused(
        "min above max",
        trainer(min_instance=7),
        "min-instance 7 exceeds max-instance 6; lower",
        "exceeds max-instance; lower",
    ),
    refused(
        "max is a billion", trainer(max_instance=10**9), "1000000000 exceeds 10000", "less than or equal to 10000"
    ),
    refused("max is 2^63", trainer(max_instance=2**63), "exceeds 10000; lower it", "max-instance"),
    refused("min is a text", trainer(min_instance="2"), "is not a whole number", "must be of type integer"),
    refused("min is 2.5", trainer(min_instance=2.5), "2.5 is not a whole number", "must be of type integer"),
    refused("min is true", trainer(min_instance=True), "is not a whole number", "must be of type integer"),
    refused("min is 2.0", trainer(min_instance=2.0), "2.0 is not a whole number", "expected int"),
    accepted("backoffLimit is 2.0", edited(backoffLimit=2.0)),
    accepted("max is 10,000", trainer(max_instance=10_000)),
    refused("elastic in gang mode", edited(fault_tolerant=False), "set fault_tolerant: true", "set fault_tolerant"),
    refused("elastic by default", edited(fault_tolerant=None), "set fault_tolerant: true", "set fault_tolerant"),
    accepted(
        "fixed in gang mode",
        with_spec(lambda s: (s.pop("fault_tolerant"), s["trainer"].update({"min-instance": 6}))[1]),
    ),
    refused(
        "pinned below min", trainer(instances=1), "instances 1 is not between min-instance 2 and", "write 0 to let"
    ),
    refused(
        "pinned above max", trainer(instances=7), "is not between min-instance 2 and max-instance 6", "write 0 to let"
    ),
    accepted("pinned", trainer(instances=4)),
    accepted("sizes", trainer(sizes=[2, 4, 6])),
    accepted("sizes in any order", trainer(sizes=[6, 2, 3])),
    accepted("a step", trainer(step=2)),
    accepted("pinned to a size", trainer(sizes=[2, 4, 6], instances=4)),
    accepted("no sizes", trainer(sizes=[], step=1)),
    refused(
        "sizes beyond max", trainer(sizes=[2, 8]), "max-instance 6, but go from 2 to 8; change", "sizes must begin"
    ),
    refused("sizes above min", trainer(sizes=[4, 6]), "min-instance 2 and end", "sizes must begin with min-instance"),
    refused("a size below min", trainer(sizes=[1, 2, 6]), "but go from 1 to 6", "sizes must begin with min-instance"),
    refused("a size twice", trainer(sizes=[2, 6, 6]), "has 6 twice", "Duplicate value"),
    refused("a size of 0", trainer(sizes=[0, 2, 6]), "sizes", "sizes"),
    refused("65 sizes", trainer(max_instance=66, sizes=[*range(2, 67)]), "sizes", "sizes"),
    refused("a text as size", trainer(sizes=["2", 6]), "sizes", "sizes"),
    refused("sizes and a step", trainer(sizes=[2, 6], step=2), "are both set; remove one", "are both set"),
    refused(
        "a step beside min", trainer(step=4), "min-instance 2 and max-instance 6 are not both multiples of", "both"
    ),
    refused("a step of 0", trainer(step=0), "step", "step"),
    refused("pinned to no size", trainer(sizes=[2, 6], instances=4), "instances 4 is no count that", "is no count"),
    refused("pinned beside a step", trainer(step=2, instances=3), "sizes or step allow (2, 4 and 6)", "is no count"),
    refused(
        "sizes of trainers without requests",
        with_spec(lambda s: s["trainer"].update(sizes=[2, 6], resources={})),
        "cannot keep them to sizes or a step",
        "cannot keep them to sizes or a step",
    ),
    refused("pserver min above max", edited("pserver", **{"min-instance": 3}), "pserver: min-instance 3", "exceeds"),
    refused("pserver min is -1", edited("pserver", **{"min-instance": -1}), "pserver.min-instance", "pserver.min"),
    accepted("no pserver", edited(pserver=None)),
    accepted("pserver without pods or resources", edited(pserver={"min-instance": 0})),
    accepted("nulls", with_spec(lambda s: s.update(passes=None, queue=None, pserver=None, volumes=None))),
    accepted("an unknown field", edited(unheardOf={"a": 1})),
]

_AMOUNTS = [
    refused("cpu NaN", requests(cpu="NaN"), "is not a valid quantity", "requests.cpu"),
    refused("cpu negative", requests(cpu="-1"), "is not a valid quantity", "requests.cpu"),
    refused("cpu negative number", requests(cpu=-1), "is not between 0", "cpu is below 1m"),
    refused("cpu zero", requests(cpu="0"), "cpu 0 is below 1m", "cpu is below 1m"),
    refused("cpu far below a millicore", requests(cpu="0.0001m"), "cpu 0.0001m is below 1m", "cpu is below 1m"),
    refused("cpu with an exponent", requests(cpu="1e3"), "without sign and exponent", "requests.cpu"),
    refused("cpu unquoted", requests(cpu=0.5), "is a decimal without quotes; write", "requests.cpu"),
    refused("cpu unquoted whole decimal", requests(cpu=1.0), "is a decimal without quotes", "string or integer"),
    refused("cpu empty", requests(cpu=""), "is not a valid quantity", "requests.cpu"),
    refused("cpu true", requests(cpu=True), "is not a valid quantity", "requests.cpu"),
    refused("cpu 2^63", requests(cpu=2**63), "is not between 0", "requests.cpu"),
    accepted("cpu quoted decimal", requests(cpu="0.5")),
    accepted("cpu bare point", requests(cpu=".5")),
    accepted("cpu number", requests(cpu=2)),
    accepted("cpu finer than a millicore", requests(cpu="1.5m")),
    refused("memory with a huge exponent", requests(memory="1e1000000"), "without sign and", "requests.memory"),
    refused("memory zero", requests(memory=0), "memory 0 is below one byte", "memory is below one byte"),
    refused("memory in thousandths", requests(memory="100m"), "m means a thousandth", "m means a thousandth"),
    refused("memory of 21 characters", requests(memory="1" * 21), "has 21 characters", "requests.memory"),
    refused("memory with a newline", requests(memory="1Gi\n"), "is not a valid quantity", "requests.memory"),
    accepted("memory beyond every cluster", requests(memory="9999999Pi")),
    accepted("memory of 20 digits", requests(memory="9" * 20)),
    refused(
        "request over limit",
        amounts({"cpu": "2"}, {"cpu": "1900m"}),
        "cpu request 2 exceeds",
        "request exceeds limit",
    ),
    accepted("request equal to limit, other spelling", amounts({"cpu": "2"}, {"cpu": "2000m"})),
    accepted("limits only", amounts(limits=SIZE)),
    refused("neither cpu nor memory", amounts(limits={GPU: 1}), "neither cpu nor memory", "neither cpu nor"),
    accepted("no resources", trainer(resources=None)),
    accepted("empty resources", trainer(resources={"requests": {}, "limits": {}})),
    refused("no resources of a pserver", edited("pserver", resources=None), "pserver: the pserver", "neither cpu"),
    refused(
        "half a GPU", amounts(limits={**SIZE, GPU: "0.5"}), "0.5 of nvidia.com/gpu is not a whole", "whole number"
    ),
    refused("500m GPU", amounts(limits={**SIZE, GPU: "500m"}), "500m of nvidia.com/gpu is not", "whole number"),
    refused("negative GPU", amounts(limits={**SIZE, GPU: -1}), "is not between 0", "whole number"),
    refused(
        "fewer GPUs than the limit",
        amounts({**SIZE, GPU: 1}, {GPU: 2}),
        "request 1 differs from limit 2",
        "request differs",
    ),
    refused("two names of GPUs", amounts(limits={**SIZE, GPU: 1, OLD_GPU: 1}), "two names", "two names"),
    refused("two names, two maps", amounts({**SIZE, GPU: 1}, {OLD_GPU: 1}), "two names", "two names"),
    accepted("no GPU, said aloud", amounts(limits={**SIZE, GPU: "0"})),
    accepted("GPU by its old name", amounts(limits={**SIZE, OLD_GPU: 1})),
    accepted("GPU requested only", amounts({**SIZE, GPU: 1})),
    accepted("a GPU nobody has", amounts(limits={**SIZE, "example.com/warp-drive": 1})),
    refused("an unknown resource", amounts({**SIZE, "gpu": "1"}), "unknown resource gpu", "unknown resource"),
    refused("pods as a resource", amounts({**SIZE, "pods": "1"}), "unknown resource pods", "unknown resource"),
    refused(
        "17 resources",
        amounts({**SIZE, **{f"example.com/r{i}": 1 for i in range(15)}}),
        "longer than 16 items",
        "at most 16",
    ),
    refused(
        "resources of a master without capacity",
        edited("master", resources={"limits": {GPU: 1}}),
        "master",
        "neither",
    ),
    accepted("resources of a master", edited("master", resources={"limits": SIZE})),
]

_NAMES = [
    refused("a name of 64 characters", renamed("a" * 64), "has 64 characters", "metadata.name"),
    refused("a name of 51 characters", renamed("a" * 51), "has 51 characters", "metadata.name"),
    accepted("a name of 50 characters", renamed("a" * 50)),
    refused("a dotted name", renamed("a.b"), '"a.b" is not', "metadata.name"),
    refused("a name of digits", renamed("1job"), '"1job" is not', "metadata.name"),
    refused("a name in capitals", renamed("Job"), '"Job" is not', "metadata.name"),
    refused("no name", {**make_manifest(), "metadata": {}}, "metadata.name is missing", "name or generateName"),
]

_FIELDS = [
    refused("port 0", edited(port=0), "port 0 is below 1", "spec.port"),
    refused("port 65536", edited(port=65536), "port 65536 exceeds 65535", "spec.port"),
    refused("ports beyond the last", edited(port=65535), "last port 65536 is above 65535", "above 65535"),
    refused("ports_num 0", edited(ports_num=0), "ports_num 0 is below 1", "ports_num"),
    refused("ports_num a billion", edited(ports_num=10**9), "ports_num 1000000000 exceeds", "ports_num"),
    refused("passes 0", edited(passes=0), "passes 0 is below 1", "spec.passes"),
    refused("trainer.passes 0", trainer(passes=0), "trainer.passes 0 is below 1", "passes"),
    refused(
        "two different passes",
        with_spec(lambda s: (s.update(passes=2), s["trainer"].update(passes=3))[0]),
        "passes 2 differs from trainer.passes 3",
        "passes differs from trainer.passes",
    ),
    accepted("the same passes twice", with_spec(lambda s: (s.update(passes=2), s["trainer"].update(passes=2))[0])),
    refused("backoffLimit -1", edited(backoffLimit=-1), "backoffLimit -1 is below 0", "backoffLimit"),
    refused("activeDeadlineSeconds -1", edited(activeDeadlineSeconds=-1), "is below 0", "activeDeadlineSeconds"),
    refused("ttl -1", edited(ttlSecondsAfterFinished=-1), "is below 0", "ttlSecondsAfterFinished"),
    refused("cooldown -1", edited("elasticity", cooldownSeconds=-1), "is below 0", "cooldownSeconds"),
    refused(
        "fault_tolerant is a text", edited(fault_tolerant="yes"), "is not true or false", "must be of type boolean"
    ),
    refused("image is a number", edited(image=7), "is not text", "must be of type string"),
    refused("image is empty", edited(image=""), "shorter than 1 character", "spec.image"),
    refused("mounts by two spellings", edited(VolumeMounts=[], volumeMounts=[]), "two spellings", "two spellings"),
    refused(
        "network by two spellings", edited(hostNetwork=True, host_network=True), "two spellings", "two spellings"
    ),
    accepted("mounts by the old spelling", edited(VolumeMounts=[{"name": "v", "mountPath": "/v"}])),
    refused("a mount without a path", edited(volumeMounts=[{"name": "v"}]), "mountPath is missing", "mountPath"),
    refused("volumes of one name", edited(volumes=[{"name": "v"}] * 2), "has name v twice", "Duplicate"),
    refused("an unknown event", edited(policies=[{"event": "Rain", "action": "RestartJob"}]), '"Rain" is', "event"),
    refused("an unknown action", edited(policies=[{"event": "Any", "action": "Pray"}]), '"Pray" is', "action"),
    refused("one event twice", edited(policies=[{"event": "Any", "action": "AbortJob"}] * 2), "twice", "Duplicate"),
    accepted(
        "policies of job and role",
        with_spec(
            lambda s: (
                s.update(policies=[{"event": "PodEvicted", "action": "RestartJob"}]),
                s["trainer"].update(policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]),
            )[0]
        ),
    ),
    refused("a source of unknown kind", edited(dataset={"source": "http://x"}), "dataset.source", "dataset.source"),
    refused(
        "a fraction of 2", edited(dataset={"source": "index:9", "maxQuarantinedFraction": 2}), "exceeds 1", "less"
    ),
    refused("shards of nothing", edited(dataset={"source": "index:9", "shardSize": 0}), "shardSize 0", "shardSize"),
    refused(
        "negative throughput",
        edited("elasticity", throughput=[{"instances": 1, "samplesPerSecond": -1}]),
        "below 0",
        "samplesPerSecond",
    ),
    refused(
        "deterministic steps of no size",
        edited("elasticity", deterministic=True),
        "deterministic is true, but globalBatch is not set; set globalBatch",
        "deterministic is true, but globalBatch is not set; set globalBatch",
    ),
    accepted("deterministic steps", edited("elasticity", deterministic=True, globalBatch=256)),
    refused(
        "batches without a first one",
        edited("elasticity", maxGlobalBatch=512),
        "maxGlobalBatch 512 is below globalBatch, or that is not set",
        "maxGlobalBatch is below globalBatch, or that is not set",
    ),
    refused(
        "batches that fall",
        edited("elasticity", globalBatch=512, maxGlobalBatch=64),
        "maxGlobalBatch 64 is below globalBatch, or that is not set",
        "maxGlobalBatch is below globalBatch, or that is not set",
    ),
    refused(
        "deterministic steps of changing size",
        edited("elasticity", deterministic=True, globalBatch=64, maxGlobalBatch=512),
        "with maxGlobalBatch the weights depend on the number of trainers",
        "with maxGlobalBatch the weights depend on the number of trainers",
    ),
    accepted("a range of batches", edited("elasticity", globalBatch=64, maxGlobalBatch=512)),
    accepted("throughput", edited("elasticity", throughput=[{"instances": 4, "samplesPerSecond": 5200}])),
    accepted("a data set", edited(dataset={"source": "index:1000", "epochs": 2, "seed": 7, "shardSize": 10})),
    accepted("a journal", edited("master", storage={"size": "1Gi", "storageClassName": "fast"})),
    refused("a journal of no size", edited("master", storage={}), "storage.size is missing", "storage.size"),
    refused("a queue with a space", edited(queue="a b"), "queue", "spec.queue"),
]

_TEMPLATES = [
    refused("our label", template(metadata={"labels": {"paddlepaddle.org/role": "x"}}), "is reserved", "is reserved"),
    refused(
        "our old label", template(metadata={"labels": {"paddle-job": "x"}}), "paddle-job is reserved", "is reserved"
    ),
    refused(
        "our annotation",
        template(metadata={"annotations": {"paddlepaddle.org/intent": "x"}}),
        "paddlepaddle.org/intent is reserved",
        "is reserved",
    ),
    refused(
        "an owner",
        template(metadata={"ownerReferences": [{"name": "x"}]}),
        "must not set ownerReferences",
        "must not set",
    ),
    refused("a pod name", template(metadata={"name": "x"}), "must not set name", "must not set"),
    refused("a namespace", template(metadata={"namespace": "x"}), "must not set namespace", "must not set"),
    refused("finalizers", template(metadata={"finalizers": ["x"]}), "must not set finalizers", "must not set"),
    refused("restartPolicy", template(restartPolicy="Always"), "must not set restartPolicy", "must not set"),
    refused("priorityClassName", template(priorityClassName="x"), "must not set priorityClassName", "must not set"),
    refused("priority", template(priority=10**9), "must not set priority", "must not set"),
    refused("hostname", template(hostname="x"), "must not set hostname", "must not set"),
    refused("subdomain", template(subdomain="x"), "must not set subdomain", "must not set"),
    refused("nodeName", template(nodeName="x"), "must not set nodeName", "must not set"),
    refused("schedulerName", template(schedulerName="x"), "must not set schedulerName", "must not set"),
    refused(
        "restartPolicy of a pserver", template("pserver", restartPolicy="Always"), "pserver.template", "must not"
    ),
    refused("restartPolicy of a master", template("master", restartPolicy="Always"), "master.template", "must not"),
    refused(
        "our volume", edited(volumes=[{"name": "edl-token", "emptyDir": {}}]), "volume name edl-token", "is reserved"
    ),
    refused(
        "our volume in a template", template(volumes=[{"name": "edl-token"}]), "volume name edl-token", "is reserved"
    ),
    refused(
        "the token's Secret",
        template(volumes=[{"name": "v", "secret": {"secretName": "job-token-0123abcd"}}]),
        "job-token-0123abcd names the token Secret",
        "token Secret of a job",
    ),
    refused(
        "a mount over the token",
        container(volumeMounts=[{"name": "v", "mountPath": "/var/run/secrets/paddlepaddle.org"}]),
        "of v at /var/run/secrets/paddlepaddle.org is reserved",
        "is reserved for the controller",
    ),
    refused(
        "our variable", container(env=[{"name": "EDL_ROLE", "value": "x"}]), "variable EDL_ROLE", "controller sets"
    ),
    refused(
        "our variable in short",
        template(env=[{"name": "EDL_TOKEN_FILE"}]),
        "variable EDL_TOKEN_FILE",
        "controller sets",
    ),
    refused(
        "10,000 variables",
        container(env=[{"name": f"V{i}", "value": "x"} for i in range(10_000)]),
        "longer than 256 items",
        "must have at most 256 items",
    ),
    refused(
        "a variable of 1.4 MB",
        container(env=[{"name": "V", "value": "x" * 1_400_000}]),
        "longer than 32768 characters",
        "may not be more than 32768",
    ),
    refused(
        "resources in the template", container(resources={"limits": SIZE}), "spec.trainer.resources", "move them to"
    ),
    refused("a container without an image", template(containers=[{"name": "x"}]), "name it trainer", "has no image"),
    *(
        refused(
            f"resources in the template of a {role}",
            template(role, containers=[{"name": role, "resources": {"limits": SIZE}}]),
            f"move them to spec.{role}.resources",
            f"move them to spec.{role}.resources",
        )
        for role in ("master", "pserver")
    ),
    *(
        refused(
            f"a container of a {role} without an image",
            template(role, containers=[{"name": "x"}]),
            "the template container x has no image",
            f"or name it {role}",
        )
        for role in ("master", "pserver")
    ),
    refused("a container without a name", template(containers=[{"image": "x"}]), "name is missing", "name: Required"),
    refused("containers of one name", template(containers=[{"name": "x", "image": "y"}] * 2), "twice", "Duplicate"),
    refused("tolerations as a map", template(tolerations={"a": 1}), "is not a list", "must be of type array"),
    refused("affinity as a text", template(affinity="x"), "is not an object", "must be of type object"),
    refused("a grace of -1", template(terminationGracePeriodSeconds=-1), "is below 0", "terminationGracePeriod"),
    refused("template as a list", edited("trainer", template=[]), "is not an object", "must be of type object"),
    refused(
        "a mount over the journal",
        edited(volumeMounts=[{"name": "v", "mountPath": "/var/lib/edl/journal"}]),
        "of v at /var/lib/edl/journal is reserved",
        "is reserved for the controller",
    ),
    refused(
        "our volume mounted",
        container(volumeMounts=[{"name": "edl-journal", "mountPath": "/x"}]),
        "of edl-journal at /x is reserved",
        "is reserved for the controller",
    ),
    refused(
        "a token by volume name",
        template("pserver", volumes=[{"name": "job-token-0123abcd"}]),
        "names the token Secret",
        "token Secret of a job",
    ),
    refused(
        "1,750 host ports",
        with_ports(*[256] * 6, 214),
        "trainer.template.spec: the containers list 1750 ports, more than 256; list fewer",
        "the containers list too many ports, more than 256",
    ),
    accepted("256 ports", with_ports(200, 56)),
    refused(
        "112 requests and limits of sidecars",
        with_sidecars(*({"limits": {**SIZE, **{f"example.com/r{i}": 1 for i in range(12)}}},) * 8),
        "the containers list 112 requests and limits, more than 96",
        "the containers list too many requests and limits, more than 96",
    ),
    accepted("eight sidecars with requests and limits", with_sidecars(*({"requests": SIZE, "limits": SIZE},) * 8)),
    refused(
        "272 expressions",
        with_affinity([term(*[("zone", 1)] * 17)] * 8, [term(*[("zone", 1)] * 17)] * 8),
        "template.spec.affinity.nodeAffinity: the node affinity has 272 expressions, more than 256",
        "the node affinity has too many expressions, more than 256",
    ),
    refused(
        "2,100 values",
        with_affinity([term(("kubernetes.io/hostname", 700), ("zone", 700))], [term(("disk", 700))]),
        "the node affinity lists 2100 values, more than 2000; list fewer",
        "the node affinity lists too many values, more than 2000",
    ),
    accepted("a thousand nodes to keep away from", with_affinity([term(("kubernetes.io/hostname", 1000))])),
    refused(
        "1,001 values of one expression",
        with_affinity([term(("kubernetes.io/hostname", 1001))]),
        "values is longer than 1000 items",
        "must have at most 1000 items",
    ),
    refused(
        "65 terms",
        with_affinity([term(("zone", 1))] * 65),
        "longer than 64 items",
        "must have at most 64 items",
    ),
    refused(
        "65 tolerations",
        template(tolerations=[{"key": f"t{i}", "operator": "Exists"} for i in range(65)]),
        "tolerations is longer than 64 items",
        "must have at most 64 items",
    ),
    refused(
        "65 selectors",
        template(nodeSelector={f"label-{i}": "x" for i in range(65)}),
        "nodeSelector is longer than 64 items",
        "must have at most 64 items",
    ),
    accepted("a sidecar", template(containers=[{"name": "log", "image": "log:1", "resources": {"limits": SIZE}}])),
    accepted("an empty template", template()),
    accepted(
        "a full template",
        template(
            metadata={"labels": {"team": "ads"}, "annotations": {"note": "x"}},
            nodeSelector={"pool": "gpu"},
            tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            affinity={"podAntiAffinity": {}},
            securityContext={"runAsUser": 1000},
            volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            containers=[{"name": "trainer", "env": [{"name": "A", "value": "b"}], "command": ["python", "x.py"]}],
        ),
    ),
]

CASES: tuple[Case, ...] = (*_BOUNDS, *_AMOUNTS, *_NAMES, *_FIELDS, *TOPOLOGIES, *_TEMPLATES)
