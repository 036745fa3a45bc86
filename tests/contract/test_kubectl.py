"""kubectl prints the same on both servers, ages, UIDs and versions aside."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.contract.servers import EMBEDDED, REAL, Server
from tests.e2e.control_plane.build import ensure_binaries
from tests.worlds.hostile.manifests import make_manifest

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "web:1", ports: [{containerPort: 80}]}]}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {a: b}}
spec:
  schedulerName: none
  containers: [{name: c, image: "web:1", resources: {requests: {cpu: 100m}}, env: [{name: A, value: b}]}]
"""
MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: cm}
data: {a: "1", b: "2"}
"""
DEVICES = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests: [{name: gpu, firstAvailable: [{name: a, deviceClassName: gpu.example.com}]}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: slice}
spec:
  driver: gpu.example.com
  nodeName: none
  pool: {name: none, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {model: {string: a}, fast: {bool: true}, version: {version: 1.2.3}}
    capacity: {memory: {value: 40960Mi}}
"""

SESSIONS = {
    "pods": (
        "create -f pod.yaml",
        "create -f pod.yaml",
        "get pods",
        "get pods -o wide --show-labels -L a",
        "get pods -o name",
        "get pod p -o json",
        "describe pod p",
        "label pod p x=y",
        "annotate pod p note=z",
        "apply -f pod.yaml",
        """patch pod p -p '{"spec":{"containers":[{"name":"c","image":"web:2"}]}}'""",
        """patch pod p --type json -p '[{"op":"add","path":"/metadata/labels/z","value":"1"}]'""",
        "patch pod none -p {}",
        "get pods -l 'a in (b),x' --field-selector status.phase=Pending,spec.nodeName=",
        "get pods --field-selector bogus=1",
        "get pods -l 'a in b'",
        "get pods,cm/none",
        "logs p",
        "logs p -c none",
        "delete pod p",
        "delete pod p",
        "delete pod p --ignore-not-found",
        "get pods",
    ),
    "serving": (
        "create deployment tool --image=tool:1 --replicas=0",
        "apply -f deployment.yaml",
        "apply -f deployment.yaml",
        "get deploy -o wide",
        "set image deploy/web c=web:2",
        "get deploy web -o 'jsonpath={.spec.template.spec.containers[0].image} {.spec.strategy}'",
        "scale deploy/web --replicas=1 --dry-run=server -o name",
        "expose deploy web --port=80 --cluster-ip=None",
        "get svc -o wide",
        "delete deploy,svc --all",
    ),
    "applying": (
        "apply --server-side -f map.yaml",
        """patch cm cm --type merge -p '{"data":{"a":"9"}}' --field-manager=other""",
        "apply --server-side -f map.yaml",
        "apply --server-side -f map.yaml --force-conflicts",
        "get cm cm -o yaml --show-managed-fields",
        "replace -f map.yaml",
        "diff -f map.yaml",
        "delete -f map.yaml",
    ),
    "jobs": (
        "create -f job.yaml",
        "get tj",
        "get tj -o wide --show-labels",
        "describe tj job",
        "apply -f job.yaml",
        "scale tj/job --replicas=3",
        "scale tj/job --replicas=99",
        "get tj job -o jsonpath={.spec.trainer.instances}",
        """patch tj job --type merge -p '{"spec":{"trainer":{"min-instance":50}}}'""",
        "create -f job.yaml -n paddlecloud",
        "explain tj.spec.trainer.min-instance",
        "explain tj.spec.elasticity --recursive",
        "delete tj job",
        "get tj",
    ),
    "devices": (
        "apply -f devices.yaml",
        "get deviceclasses,resourceclaimtemplates,resourceclaims,resourceslices",
        "get resourceclaims,resourceclaimtemplates -o yaml",
        "get resourceslice slice -o yaml",
        "get resourceslices --field-selector spec.nodeName=none -o name",
        "get resourceslices --field-selector spec.driver=other -o name",
        "patch resourceclaim shared --subresource=status --type merge -p "
        """'{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}}'""",
        "delete -f devices.yaml",
    ),
    "typed": (
        "create configmap cm --from-literal=a=b",
        "create secret generic s --from-literal=a=b",
        "get secret s -o jsonpath={.data}",
        "create sa bob",
        "create quota q --hard=pods=1",
        "create role r --verb=get --resource=pods",
        "create rolebinding rb --role=r --user=u",
        "get cm,secret,sa",
        "get role,rolebinding -o wide",
        "auth can-i create pods",
        "get all",
        "get none",
        "delete cm,secret,sa,quota,role,rolebinding --all",
    ),
}
_SCRUBBED = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\w{3}, \d\d \w{3} \d{4} [\d:]+ [+-]\d{4}"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "UID"),
    (re.compile(r"(?i)(resource ?version\"?: *\"?)\d+"), r"\1VERSION"),
    (re.compile(r"\b\d+(?:m\d+s|[smh])\b(?=\s|$)"), "AGE"),
    (re.compile(r"kube-api-access-\w{5}"), "kube-api-access-X"),
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+\S*.*"), r"\1"),
    (re.compile(r"contract-\d+"), "SPACE"),
    (re.compile(r"[ \t]+"), " "),
)
# Kinds, verbs and paths that only the real server's controllers act on.
_OF_CONTROLLERS = re.compile(r"^\s*(deployment\.kubernetes\.io/revision.*|serviceaccount/default.*)$", re.MULTILINE)


def _printed(server: Server, folder: Path, session: tuple[str, ...]) -> list[str]:
    """What kubectl prints for each command, scrubbed."""
    space = server.namespace()
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(folder)}
    found = []
    for command in session:
        line = f"{ensure_binaries().kubectl} {command}" + ("" if " -n " in command else f" -n {space}")
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        text = f"$ kubectl {command}\n{done.stdout}"
        for pattern, word in _SCRUBBED:
            text = pattern.sub(word, text)
        found.append(_OF_CONTROLLERS.sub("", text))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the sessions use."""
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT)
    (tmp_path / "map.yaml").write_text(MAP)
    (tmp_path / "devices.yaml").write_text(DEVICES)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(make_manifest("job")))
    return tmp_path


@pytest.mark.parametrize("name", SESSIONS)
def test_kubectl_prints_the_same(servers: dict[str, Server], folder: Path, name: str) -> None:
    mine, theirs = (_printed(servers[one], folder, SESSIONS[name]) for one in (EMBEDDED, REAL))
    assert mine == theirs
