"""What a pod may expect of a node, as tests that run on any cluster whose nodes are those of the process kubelet.

A test module makes a subclass of `PodBehaviour`, and a fixture `kube` with a client of its cluster.
"""

from __future__ import annotations

import base64
import subprocess
import time
from typing import Any

import pytest

from tests.e2e.control_plane.kube import Kube, KubeError, Object

WAIT_S = 60.0
FOREVER = "import signal; s = {signal.SIGTERM}; signal.pthread_sigmask(signal.SIG_BLOCK, s); signal.sigwait(s)"
# It says that it is up once SIGTERM cannot end it any more.
UP_FOREVER = FOREVER.replace("signal.sigwait", "print('up', flush=True); signal.sigwait")
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


def make_pod(name: str, *argv: str, restart: str = "Never", spec: Object | None = None, **container: Any) -> Object:
    """A pod with one container `main` that runs this Python or, with several words, a program of this machine."""
    command = ["python", "-u", "-c", *argv] if len(argv) == 1 else list(argv)
    main = {"name": "main", "image": "busybox", "command": command, **container}
    body = {"restartPolicy": restart, "terminationGracePeriodSeconds": 5, "containers": [main], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


class PodBehaviour:
    """The tests."""

    def run(self, kube: Kube, pod: Object, *phases: str) -> Object:
        """Create a pod and wait until it is in one of the phases; by default until it has ended."""
        kube.create(pod)
        return self.wait(kube, pod["metadata"]["name"], *(phases or ("Succeeded", "Failed")))

    def wait(self, kube: Kube, name: str, *phases: str) -> Object:
        def found() -> Object | None:
            pod = kube.get("pods", name)
            return pod if pod["status"].get("phase") in phases else None

        return kube.wait_until(found, WAIT_S, f"pod {name} is {' or '.join(phases)}") or {}

    def status(self, pod: Object) -> Object:
        """The status of its first container."""
        found: Object = pod["status"]["containerStatuses"][0]
        return found

    def log(self, kube: Kube, name: str, **query: str) -> str:
        """The log of a container; an empty text while it cannot be read."""
        path = f"{kube.resource('pods').path('default', name)}/log"
        try:
            return str(kube.request("GET", path, query=query)["message"])
        except KubeError:
            return ""

    def wait_for_log(self, kube: Kube, name: str, text: str, **query: str) -> str:
        kube.wait_until(lambda: text in self.log(kube, name, **query), WAIT_S, f"the log of {name} contains {text}")
        return self.log(kube, name, **query)

    def wait_gone(self, kube: Kube, name: str, timeout_s: float = WAIT_S) -> None:
        kube.wait_until(lambda: kube.find("pods", name) is None, timeout_s, f"pod {name} is gone")

    def test_it_runs_with_its_own_address_and_name(self, kube: Kube) -> None:
        env = [
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TEXT", "value": "at $(IP)"},
        ]
        code = "import os, socket; print(os.environ['TEXT'], socket.gethostname())"
        pod = self.run(kube, make_pod("named", code, env=env))
        assert pod["status"]["phase"] == "Succeeded"
        assert pod["status"]["podIP"].startswith("127.")
        assert self.log(kube, "named") == f"at {pod['status']['podIP']} named\n"

    def test_its_request_changes_while_it_runs(self, kube: Kube) -> None:
        resources = {"requests": {"cpu": "500m", "memory": "16Mi"}, "limits": {"cpu": "100"}}
        kube.create(make_pod("resized", FOREVER, resources=resources))
        pod = self.wait(kube, "resized", "Running")
        assert self.status(pod)["allocatedResources"] == resources["requests"]
        assert pod["status"]["qosClass"] == "Burstable"

        def request(cpu: str) -> None:
            change = {"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": cpu}
            kube.patch("pods", "resized", [change], subresource="resize")

        def granted() -> tuple[str, str]:
            found = kube.get("pods", "resized")
            pending = [one["reason"] for one in found["status"]["conditions"] if one["type"] == "PodResizePending"]
            return self.status(found)["resources"]["requests"]["cpu"], "".join(pending)

        request("100m")
        kube.wait_until(lambda: granted() == ("100m", ""), WAIT_S, "it is granted")
        with pytest.raises(KubeError, match=r"didn't have enough allocatable resources: cpu, requested: 90000, "):
            request("90")
        request("200m")
        kube.wait_until(lambda: granted() == ("200m", ""), WAIT_S, "it is granted, and nothing is pending")
        assert self.status(kube.get("pods", "resized"))["restartCount"] == 0
        kube.delete("pods", "resized")
        self.wait_gone(kube, "resized")

    def test_exit_codes_are_those_of_the_program(self, kube: Kube) -> None:
        ended = self.status(self.run(kube, make_pod("good", "print(1)")))["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        bad = self.run(kube, make_pod("bad", "raise SystemExit(3)"))
        ended = self.status(bad)["state"]["terminated"]
        assert (bad["status"]["phase"], ended["exitCode"], ended["reason"]) == ("Failed", 3, "Error")

    def test_a_program_that_does_not_exist_fails_with_its_name(self, kube: Kube) -> None:
        pod = self.run(kube, make_pod("absent", "no-such-program", "now"))
        ended = self.status(pod)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
        assert "no-such-program" in ended["message"]

    def test_on_failure_starts_it_again_with_its_volume(self, kube: Kube) -> None:
        code = (
            "import pathlib, sys; path = pathlib.Path(sys.argv[1]) / 'tried'; tried = path.exists(); path.touch();"
            " print('again' if tried else 'first'); sys.exit(not tried)"
        )
        volumes = {"volumes": [{"name": "data", "emptyDir": {}}]}
        mounts = [{"name": "data", "mountPath": "/data"}]
        command = ["python", "-S", "-c", code, "/data"]
        pod = self.run(kube, make_pod("retry", *command, restart="OnFailure", spec=volumes, volumeMounts=mounts))
        assert pod["status"]["phase"] == "Succeeded"
        assert self.status(pod)["restartCount"] == 1
        assert self.status(pod)["lastState"]["terminated"]["exitCode"] == 1
        assert self.log(kube, "retry") == "again\n"
        assert self.log(kube, "retry", previous="true") == "first\n"

    def test_a_container_that_always_crashes_is_backed_off(self, kube: Kube) -> None:
        kube.create(make_pod("crash", "raise SystemExit(1)", restart="Always"))

        def reason() -> str:
            states = kube.get("pods", "crash")["status"].get("containerStatuses") or [{}]
            return str((states[0].get("state", {}).get("waiting") or {}).get("reason"))

        kube.wait_until(lambda: reason() == "CrashLoopBackOff", WAIT_S, "it is backed off")
        pod = kube.get("pods", "crash")
        assert pod["status"]["phase"] == "Running"
        assert self.status(pod)["lastState"]["terminated"]["exitCode"] == 1
        kube.delete("pods", "crash")
        self.wait_gone(kube, "crash", 20)

    def test_the_termination_message_is_that_of_the_file(self, kube: Kube) -> None:
        code = "import os, sys; open('/dev/termination-log' if not sys.argv[1:] else sys.argv[1], 'w').write('why')"
        pod = self.run(kube, make_pod("message", "python", "-S", "-c", code, "/dev/termination-log"))
        assert self.status(pod)["state"]["terminated"]["message"] == "why"

    def test_the_termination_message_may_be_the_end_of_the_log(self, kube: Kube) -> None:
        code = "print('first'); print('last'); raise SystemExit(1)"
        pod = self.run(kube, make_pod("fallback", code, terminationMessagePolicy="FallbackToLogsOnError"))
        assert self.status(pod)["state"]["terminated"]["message"] == "first\nlast\n"

    @pytest.mark.parametrize(
        ("name", "printed", "kept"),
        [
            ("many-lines", "[print(i) for i in range(100)]", "".join(f"{i}\n" for i in range(20, 100))),
            ("long-line", "print('x' * 3000)", "x" * 2047 + "\n"),
        ],
        ids=["80 lines", "2048 bytes"],
    )
    def test_the_end_of_a_long_log_is_80_lines_and_2048_bytes_at_most(
        self, kube: Kube, name: str, printed: str, kept: str
    ) -> None:
        code = f"{printed}; raise SystemExit(1)"
        pod = self.run(kube, make_pod(name, code, terminationMessagePolicy="FallbackToLogsOnError"))
        assert self.status(pod)["state"]["terminated"]["message"] == kept

    def test_a_container_that_ends_well_or_has_a_message_of_its_own_keeps_no_log(self, kube: Kube) -> None:
        policy = "FallbackToLogsOnError"
        well = self.run(kube, make_pod("well", "print('done')", terminationMessagePolicy=policy), "Succeeded")
        assert "message" not in self.status(well)["state"]["terminated"]
        code = "import sys; open(sys.argv[1], 'w').write('why'); print('done'); raise SystemExit(1)"
        own = make_pod("own", "python", "-S", "-c", code, "/dev/termination-log", terminationMessagePolicy=policy)
        assert self.status(self.run(kube, own))["state"]["terminated"]["message"] == "why"

    def test_too_much_memory_ends_it_with_137(self, kube: Kube) -> None:
        code = "data = bytearray(200 << 20); import time; time.sleep(600)"
        pod = self.run(kube, make_pod("oom", code, resources={"limits": {"memory": "64Mi"}}))
        ended = self.status(pod)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")

    def test_deletion_lets_it_end_by_itself(self, kube: Kube) -> None:
        code = f"{UP_FOREVER}; print('saved', flush=True); import time; time.sleep(1)"
        self.run(kube, make_pod("polite", code), "Running")
        lines = kube.follow_log("polite")
        assert next(lines) == "up\n"
        kube.delete("pods", "polite")
        assert list(lines) == ["saved\n"]
        self.wait_gone(kube, "polite", 15)

    def test_deletion_kills_what_does_not_end_within_the_grace(self, kube: Kube) -> None:
        pod = make_pod("stubborn", STUBBORN, spec={"terminationGracePeriodSeconds": 2})
        self.run(kube, pod, "Running")
        self.wait_for_log(kube, "stubborn", "ready")
        since = time.monotonic()
        kube.delete("pods", "stubborn")
        self.wait_gone(kube, "stubborn", 20)
        assert 1.5 < time.monotonic() - since < 15

    def test_deletion_by_force_leaves_no_process(self, kube: Kube) -> None:
        code = f"import os; print(os.getpid(), flush=True); {STUBBORN}"
        self.run(kube, make_pod("forced", code), "Running")
        pid = self.wait_for_log(kube, "forced", "ready").split()[0]
        kube.delete("pods", "forced", grace_s=0)
        kube.wait_until(lambda: not is_alive(int(pid)), 20, "its process is gone")
        assert kube.find("pods", "forced") is None

    def test_init_containers_run_first_and_one_after_the_other(self, kube: Kube) -> None:
        def step(name: str, code: str) -> Object:
            command = ["python", "-S", "-c", f"import sys; path = sys.argv[1] + '/steps'; {code}", "/shared"]
            mount = [{"name": "shared", "mountPath": "/shared"}]
            return {"name": name, "image": "busybox", "command": command, "volumeMounts": mount}

        inits = [step("one", "open(path, 'a').write('1')"), step("two", "open(path, 'a').write('2')")]
        main = step("main", "print(open(path).read())")
        pod = make_pod("steps", "x")
        pod["spec"] |= {
            "volumes": [{"name": "shared", "emptyDir": {}}],
            "initContainers": inits,
            "containers": [main],
        }
        assert self.run(kube, pod)["status"]["phase"] == "Succeeded"
        assert self.log(kube, "steps") == "12\n"

    def test_a_failed_init_container_fails_the_pod(self, kube: Kube) -> None:
        init = {"name": "one", "image": "busybox", "command": ["sh", "-c", "exit 4"]}
        pod = self.run(kube, make_pod("uninitialised", "print('never')", spec={"initContainers": [init]}))
        assert pod["status"]["phase"] == "Failed"
        assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
        assert "terminated" not in self.status(pod)["state"]

    def test_readiness_follows_its_probe(self, kube: Kube) -> None:
        code = (
            "import os, time; path = os.environ['HOME'] + '/up'; open(path, 'w').close();"
            " time.sleep(3); os.remove(path); time.sleep(600)"
        )
        probe = {"exec": {"command": ["sh", "-c", "test -e $HOME/up"]}, "periodSeconds": 1, "failureThreshold": 1}
        kube.create(make_pod("readiness", code, readinessProbe=probe))

        def is_ready() -> bool:
            statuses = kube.get("pods", "readiness")["status"].get("containerStatuses") or [{}]
            return bool(statuses[0].get("ready"))

        kube.wait_until(is_ready, WAIT_S, "it is ready")
        kube.wait_until(lambda: not is_ready(), WAIT_S, "it is not ready any more")
        kube.delete("pods", "readiness", grace_s=0)

    def test_liveness_starts_it_again(self, kube: Kube) -> None:
        server = (
            "import http.server, os, pathlib, sys\n"
            "class H(http.server.BaseHTTPRequestHandler):\n"
            "    def do_GET(self):\n"
            "        self.send_response(200 if pathlib.Path(sys.argv[1], 'second').exists() else 500)\n"
            "        self.end_headers()\n"
            "first = pathlib.Path(sys.argv[1], 'first')\n"
            "pathlib.Path(sys.argv[1], 'second' if first.exists() else 'first').touch()\n"
            "http.server.HTTPServer(('', 8080), H).serve_forever()\n"
        )
        probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "failureThreshold": 2}
        volumes = {"volumes": [{"name": "data", "emptyDir": {}}], "terminationGracePeriodSeconds": 1}
        mounts = [{"name": "data", "mountPath": "/data"}]
        startup = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 30}
        command = ["python", "-c", server, "/data"]
        pod = make_pod(
            "liveness",
            *command,
            restart="Always",
            spec=volumes,
            volumeMounts=mounts,
            livenessProbe=probe,
            startupProbe=startup,
        )
        kube.create(pod)

        def restarted() -> bool:
            statuses = kube.get("pods", "liveness")["status"].get("containerStatuses") or [{}]
            return statuses[0].get("restartCount") == 1 and bool(statuses[0].get("ready"))

        kube.wait_until(restarted, WAIT_S, "it is started again, and ready")
        kube.delete("pods", "liveness", grace_s=0)

    def test_an_unknown_image_is_not_pulled_and_the_message_names_the_table(self, kube: Kube) -> None:
        kube.create(make_pod("unknown", "print(1)", image="example.com/unknown:1"))

        def waiting() -> Object:
            statuses = kube.get("pods", "unknown")["status"].get("containerStatuses") or [{}]
            found: Object = statuses[0].get("state", {}).get("waiting") or {}
            return found

        kube.wait_until(lambda: waiting().get("reason") == "ImagePullBackOff", WAIT_S, "it is backed off")
        assert "image table" in waiting()["message"]
        assert "*edl/edl-controller" in waiting()["message"]
        kube.delete("pods", "unknown")
        self.wait_gone(kube, "unknown", 20)

    def test_a_secret_is_waited_for_and_then_a_file(self, kube: Kube) -> None:
        mounts = [{"name": "key", "mountPath": "/key"}]
        volumes = {"volumes": [{"name": "key", "secret": {"secretName": "late-key"}}]}
        command = ["sh", "-c", "cat /key/token"]
        kube.create(make_pod("secret", *command, spec=volumes, volumeMounts=mounts))

        def mount_failed() -> bool:
            events = kube.list("events", "default")
            return any(e["reason"] == "FailedMount" and e["involvedObject"]["name"] == "secret" for e in events)

        kube.wait_until(mount_failed, WAIT_S, "an event says what is missing")
        data = {"token": base64.b64encode(b"late").decode()}
        kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late-key"}, "data": data})
        assert self.wait(kube, "secret", "Succeeded")
        assert self.log(kube, "secret") == "late"

    def test_pods_find_each_other_by_the_name_of_their_service(self, kube: Kube) -> None:
        service = {"clusterIP": "None", "selector": {"app": "server"}, "ports": [{"port": 8080}]}
        kube.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"}, "spec": service})
        server = make_pod("server", "unused", image="edl/serve", ports=[{"containerPort": 8080}])
        del server["spec"]["containers"][0]["command"]
        server["spec"] |= {"hostname": "first", "subdomain": "peers"}
        probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
        server["spec"]["containers"][0]["readinessProbe"] = probe
        kube.create(server)
        client = (
            "import time, urllib.request\n"
            "for _ in range(100):\n"
            "    try:\n"
            "        print(urllib.request.urlopen('http://first.peers.default.svc:8080').read().decode())\n"
            "        break\n"
            "    except OSError:\n"
            "        time.sleep(0.2)\n"
        )
        self.run(kube, make_pod("client", client))
        assert self.log(kube, "client") == "first\n\n"
        kube.delete("pods", "server", grace_s=0)

    def test_the_last_lines_of_a_log(self, kube: Kube) -> None:
        self.run(kube, make_pod("lines", "print(*range(9), sep='\\n')"))
        assert self.log(kube, "lines", tailLines="2") == "7\n8\n"

    def test_a_hook_runs_before_the_container_is_stopped(self, kube: Kube) -> None:
        hook = {"preStop": {"exec": {"command": ["sh", "-c", 'echo stopping > "$0"', "/notes/hook"]}}}
        code = f"import sys; {UP_FOREVER}; print(open(sys.argv[1]).read(), flush=True)"
        volumes = {"volumes": [{"name": "notes", "emptyDir": {}}]}
        mounts = [{"name": "notes", "mountPath": "/notes"}]
        command = ["python", "-S", "-c", code, "/notes/hook"]
        pod = make_pod("hooked", *command, spec=volumes, lifecycle=hook, volumeMounts=mounts)
        self.run(kube, pod, "Running")
        lines = kube.follow_log("hooked")
        assert next(lines) == "up\n"
        kube.delete("pods", "hooked")
        assert "stopping\n" in list(lines)
        self.wait_gone(kube, "hooked", 20)

    def test_a_failed_hook_after_the_start_ends_the_container(self, kube: Kube) -> None:
        hook = {"postStart": {"exec": {"command": ["sh", "-c", "exit 3"]}}}
        pod = self.run(kube, make_pod("bad-hook", "import time; time.sleep(600)", lifecycle=hook))
        assert pod["status"]["phase"] == "Failed"

        def reasons() -> bool:
            return any(event["reason"] == "FailedPostStartHook" for event in kube.list("events", "default"))

        kube.wait_until(reasons, WAIT_S, "an event tells of the hook")

    def test_a_terminal_is_refused_with_what_to_do(self, kube: Kube) -> None:
        self.run(kube, make_pod("no-terminal", FOREVER), "Running")
        path = f"{kube.resource('pods').path('default', 'no-terminal')}/exec"
        with pytest.raises(KubeError) as refused:
            kube.request("POST", path, query={"command": "ls", "stdout": "true", "tty": "true"})
        assert refused.value.code >= 400
        kube.delete("pods", "no-terminal", grace_s=0)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return bool(done.stdout.strip()) and not done.stdout.startswith("Z")
