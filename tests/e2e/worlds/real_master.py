"""The master of a job as a real process: the command of its pod, at the address of its pod.

kwok only pretends to run pods. A test gives the pod of a master a loopback address, and runs the command of the pod
there: with its flags, the tokens of the Secret that the controller wrote, and a folder instead of the volume.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.e2e.control_plane.kube import Kube
from tests.e2e.control_plane.processes import die_with_parent

Object = dict[str, Any]
PORT = 8080


class RealMaster:
    """The master of one job.

    Args:
        kube: a client with all rights.
        job: the name of the job, in namespace `default`.
        folder: for its journal and its tokens.
        ip: a free loopback address.
    """

    def __init__(self, kube: Kube, job: str, folder: Path, ip: str) -> None:
        self.kube, self.job, self.folder, self.ip = kube, job, folder, ip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pod(self) -> Object:
        """Its pod."""
        return self.kube.get("pods", f"{self.job}-master-0")

    def command(self) -> list[str]:
        """The command of its container, with the paths and the address of this machine."""
        (container,) = self.pod["spec"]["containers"]
        mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        words: list[str] = container["command"]
        for name, here in (("edl-token", "tokens"), ("edl-journal", "journal")):
            words = [word.replace(mounts[name], str(self.folder / here)) for word in words]
        return [word.replace(f"0.0.0.0:{PORT}", f"{self.ip}:{PORT}") for word in words]

    def write_tokens(self) -> None:
        """Write the tokens as the kubelet mounts them: the keys of the Secret of the pod, as files."""
        (volume,) = (v for v in self.pod["spec"]["volumes"] if v["name"] == "edl-token")
        secret = self.kube.get("secrets", volume["secret"]["secretName"])
        (self.folder / "tokens").mkdir(parents=True, exist_ok=True)
        for item in volume["secret"]["items"]:
            (self.folder / "tokens" / item["path"]).write_bytes(base64.b64decode(secret["data"][item["key"]]))

    def __enter__(self) -> RealMaster:
        self.write_tokens()
        edl = [str(Path(sys.executable).with_name("edl")), *self.command()[1:]]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                edl, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, env={**os.environ}
            )
        self.kube.wait_until(self._answers, 30, "the master answers")
        address = {"podIP": self.ip, "podIPs": [{"ip": self.ip}]}
        self.kube.patch("pods", f"{self.job}-master-0", {"status": address}, subresource="status")
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log
        try:
            return bool(self.ask("GET", "/v1/status"))
        except (urllib.error.URLError, OSError):
            return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if error is not None:
            print(self.log)

    @property
    def log(self) -> str:
        """Its log."""
        return (self.folder / "log").read_text()

    def ask(self, method: str, path: str, body: object = None) -> Object:
        """Make one call with the trainers' token; return the response."""
        shown = (self.folder / "tokens" / "trainer").read_text()
        request = urllib.request.Request(
            f"http://{self.ip}:{PORT}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {shown}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=40) as answer:
            found: Object = json.load(answer)
            return found


class PretendTrainer:
    """A trainer that makes the calls of the pod of that name."""

    def __init__(self, master: RealMaster, name: str) -> None:
        uid = master.kube.get("pods", name)["metadata"]["uid"]
        self.master, self.session = master, {"pod_uid": uid, "incarnation": 1, "name": name}
        self.seq = 0
        self.leases: list[Object] = []

    def sync(self, want: int = 0, wait_s: float = 0.0, **said: Any) -> Object:
        """Report something and request that many leases."""
        self.seq += 1
        body = {"session": self.session, "seq": self.seq, "want": want, "wait_s": wait_s, **said}
        answer = self.master.ask("POST", "/v1/sync", body)
        self.leases = [x for x in self.leases if x["fence"] not in answer["revoked"]] + answer["leases"]
        return answer

    def work(self) -> Object:
        """Take a lease if there is none, and finish all leases."""
        if not self.leases:
            self.sync(1, 2.0)
        done, self.leases = self.leases, []
        return self.sync(done=[{k: x[k] for k in ("epoch", "start", "end", "fence")} for x in done])
