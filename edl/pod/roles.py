"""The commands in the pods of a job: `paddle_k8s` starts a role, and `k8s_tools` finds the other pods.

Standard library only: a trainer's image installs edl without extras. Commands, selectors, answers and variables are
those of the original scripts, which existing images and entrypoints call. Two errors of the originals are corrected:
pods are sorted by number and not by name, and too many failures do not exit with 0.

`paddle_k8s` is the first process of its container. It waits for the pods that its role needs, adds their addresses to
the environment, and runs the entrypoint (`edl.pod.entrypoint`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from edl.errors import ConfigError, EdlError, PermanentError
from edl.pod.entrypoint import print_line, run_entrypoint
from edl.pod.pods import PHASES, find_source
from edl.pod.tools import Tools
from edl.termination_log import write_termination_log

FAILED, USAGE, SIGNALLED = 1, 2, 128
_PSERVER, _TRAINER = "PSERVER", "TRAINER"
_ROLES = {_PSERVER: _PSERVER, _TRAINER: _TRAINER, "WORKER": _TRAINER}
_JOURNAL = "/var/lib/edl/journal"

Environment = dict[str, str]


def paddle_k8s() -> NoReturn:
    """Run the command `paddle_k8s`, which starts a role of a job."""
    parser = argparse.ArgumentParser("paddle_k8s", description="Start a role of a TrainingJob in its pod.")
    parser.add_argument("role", choices=list(_STARTS), metavar="|".join(_STARTS))
    parser.add_argument("version", nargs="?", choices=["v2"], help="only for existing files; v1 is not supported")
    start = _STARTS[parser.parse_args().role]
    _run(lambda: start(dict(os.environ)), "paddle_k8s")


def k8s_tools() -> NoReturn:
    """Run the command `k8s_tools`, which finds the pods of a job."""
    parser = argparse.ArgumentParser("k8s_tools", description="Find the other pods of a TrainingJob from a pod.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    arguments: dict[str, dict[str, Callable[[str], object]]] = {
        "wait_pods_running": {"count": _whole},
        "wait_containers_ready": {},
        "fetch_ips": {},
        "fetch_endpoints": {"port": _port},
        "fetch_id": {},
        "count_pods_by_phase": {"phase": _phase},
    }
    for command, values in arguments.items():
        subparser = commands.add_parser(command)
        subparser.add_argument("selector", help="labels of the pods, such as paddle-job=NAME")
        for name, kind in values.items():
            subparser.add_argument(name, type=kind)
    parsed = parser.parse_args()
    _run(lambda: _run_tool(parsed, dict(os.environ)), "k8s_tools")


def _run_tool(parsed: argparse.Namespace, environment: Environment) -> int:
    tools = Tools(find_source(environment))
    match parsed.command:
        case "wait_pods_running":
            tools.wait_pods_running(parsed.selector, parsed.count)
        case "wait_containers_ready":
            tools.wait_containers_ready(parsed.selector)
        case "fetch_ips":
            print_line(tools.fetch_ips(parsed.selector))
        case "fetch_endpoints":
            print_line(tools.fetch_endpoints(parsed.selector, parsed.port))
        case "fetch_id":
            print_line(str(tools.fetch_id(parsed.selector, *_name_and_ip(environment))))
        case _:
            print_line(str(tools.count_pods_by_phase(parsed.selector, parsed.phase)))
    return 0


def _start_fluid(environment: Environment) -> int:
    """Start a pserver or trainer of a job with fixed numbers; each gets the addresses of all the others."""
    role = _role(environment)
    tools = Tools(find_source(environment))
    _await_pservers(tools, environment, "PADDLE_PSERVERS_NUM")
    if role == _TRAINER:
        _await_trainers(tools, environment, "PADDLE_TRAINERS_NUM")
    extended = _with_addresses(tools, environment, role)
    if role == _TRAINER:
        _refuse_after_failures(tools, environment, 1)
    return run_entrypoint(_entry(environment), extended)


def _start_pserver(environment: Environment) -> int:
    """Start a pserver of a gang."""
    tools = Tools(find_source(environment))
    _await_pservers(tools, environment, "PSERVERS")
    return _run_in_workspace(_with_addresses(tools, environment, _PSERVER))


def _start_trainer(environment: Environment) -> int:
    """Start a trainer of a gang, in which no trainer may fail."""
    tools = Tools(find_source(environment))
    _refuse_after_failures(tools, environment, 0)
    _await_pservers(tools, environment, "PSERVERS")
    _await_trainers(tools, environment, "TRAINERS")
    extended = _with_addresses(tools, environment, _TRAINER)
    extended["PADDLE_INIT_PSERVERS"] = tools.fetch_ips(_selector(environment, _PSERVER))
    extended["PADDLE_INIT_TRAINER_ID"] = extended["PADDLE_TRAINER_ID"]
    return _run_in_workspace(extended)


def _start_new_pserver(environment: Environment) -> int:
    """Start a pserver of a fault-tolerant job; it may restart while the other pods run."""
    _await_master(Tools(find_source(environment)), environment)
    return _run_in_workspace(_with_names(environment))


def _start_new_trainer(environment: Environment) -> int:
    """Start a trainer of a fault-tolerant job; other trainers come and go while it runs."""
    tools = Tools(find_source(environment))
    _refuse_after_failures(tools, environment, _number(environment, "TRAINERS"))
    _await_pservers(tools, environment, "PSERVERS")
    _await_master(tools, environment)
    return _run_in_workspace(_with_names(environment))


def _start_master(environment: Environment) -> int:
    """Start the data master, for people who do it by hand; the controller runs `edl master` itself."""
    program = shutil.which("edl", path=environment.get("PATH"))
    if program is None:
        raise ConfigError(
            "start_master: the command edl is not on PATH; run pip install '.[controller]' in a clone of edl: the"
            " project edl of the Python package index is another program"
        )
    journal, token = environment.get("EDL_JOURNAL") or _JOURNAL, environment.get("EDL_TOKEN_FILE", "")
    command = ["edl", "master", "--listen", "0.0.0.0:8080", "--journal", journal, "--token-file", token]
    os.execve(program, command, environment)  # noqa: S606 - no shell is needed


_STARTS: dict[str, Callable[[Environment], int]] = {
    "start_fluid": _start_fluid,
    "start_pserver": _start_pserver,
    "start_trainer": _start_trainer,
    "start_new_pserver": _start_new_pserver,
    "start_new_trainer": _start_new_trainer,
    "start_master": _start_master,
}


def _await_pservers(tools: Tools, environment: Environment, count: str) -> None:
    tools.wait_pods_running(_selector(environment, _PSERVER), _number(environment, count))


def _await_trainers(tools: Tools, environment: Environment, count: str) -> None:
    tools.wait_pods_running(_selector(environment, _TRAINER), _number(environment, count))


def _await_master(tools: Tools, environment: Environment) -> None:
    if environment.get("EDL_MASTER") != "":
        tools.wait_pods_running(f"paddle-job-master={_required(environment, 'PADDLE_JOB_NAME')}", 1)


def _refuse_after_failures(tools: Tools, environment: Environment, limit: int) -> None:
    """Refuse to start if more trainers than `limit` have failed; the original exited with 0, which means success."""
    selector = _selector(environment, _TRAINER)
    if tools.too_many_failed(selector, limit):
        raise PermanentError(
            f"job {environment['PADDLE_JOB_NAME']}: the number of failed trainers is above the limit of {limit}, so"
            f" this trainer does not start; read the logs of the failed pods (kubectl get pods -l {selector}), then"
            " delete them"
        )


def _with_addresses(tools: Tools, environment: Environment, role: str) -> Environment:
    """The environment with the addresses of all pods, for a job whose pods do not change."""
    place = str(tools.wait_until_listed(_selector(environment, role), *_name_and_ip(environment)))
    return {
        **environment,
        "PADDLE_PSERVERS": tools.fetch_endpoints(
            _selector(environment, _PSERVER), _number(environment, "PADDLE_PORT")
        ),
        "PADDLE_TRAINER_IPS": tools.fetch_ips(_selector(environment, _TRAINER)),
        "PADDLE_TRAINER_ID": place,
        "PADDLE_PSERVER_ID": place,
    }


def _with_names(environment: Environment) -> Environment:
    """The environment with names and indices, which stay valid while pods come and go."""
    job, port = _required(environment, "PADDLE_JOB_NAME"), _number(environment, "PADDLE_PORT")
    pservers = [f"{job}-pserver-{i}.{job}:{port + i}" for i in range(_number(environment, "PSERVERS"))]
    index = str(_number(environment, "EDL_INDEX"))
    return {
        **environment,
        "PADDLE_PSERVERS": ",".join(pservers),
        "PADDLE_TRAINER_ID": index,
        "PADDLE_PSERVER_ID": index,
    }


def _run_in_workspace(environment: Environment) -> int:
    """Run the entrypoint in the folder with the code of the job, which is added to the path of Python too."""
    workspace = environment.get("TRAINER_PACKAGE", "")
    if workspace:
        try:
            os.chdir(workspace)
        except OSError as error:
            raise ConfigError(
                f"workspace {workspace}: cannot be entered: {error}; check spec.trainer.workspace and the image"
            ) from error
        path = environment.get("PYTHONPATH")
        environment = {**environment, "PYTHONPATH": f"{workspace}:{path}" if path else workspace}
    return run_entrypoint(_entry(environment), environment)


def _entry(environment: Environment) -> str:
    return _required(environment, "ENTRY")


def _role(environment: Environment) -> str:
    value = environment.get("PADDLE_TRAINING_ROLE") or environment.get("TRAINING_ROLE", "")
    if value.upper() not in _ROLES:
        raise ConfigError(f"PADDLE_TRAINING_ROLE {value!r}: this role does not exist; set one of {', '.join(_ROLES)}")
    return _ROLES[value.upper()]


def _selector(environment: Environment, role: str) -> str:
    label = "paddle-job" if role == _TRAINER else "paddle-job-pserver"
    return f"{label}={_required(environment, 'PADDLE_JOB_NAME')}"


def _name_and_ip(environment: Environment) -> tuple[str, str]:
    """The name and the address of this pod; empty texts if they are unknown."""
    return environment.get("POD_NAME", ""), environment.get("POD_IP", "")


def _required(environment: Environment, name: str) -> str:
    if not environment.get(name):
        raise ConfigError(
            f"{name} is empty; the controller sets it in every pod of a job: set it too, or run this in such a pod"
        )
    return environment[name]


def _number(environment: Environment, name: str) -> int:
    text = _required(environment, name)
    if not text.isdecimal():
        raise ConfigError(f"{name} {text!r}: not a whole number; set it as the controller does in a pod of a job")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give 1 to 65535")
    return int(text)


def _phase(text: str) -> str:
    if text not in PHASES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a phase of a pod; give one of {', '.join(PHASES)}")
    return text


def _run(work: Callable[[], int], name: str) -> NoReturn:
    """Run a command and exit.

    Until the entrypoint runs, signals end this process: the first process of a container ignores them by default.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _exit_by_signal)
    try:
        code = work()
    except EdlError as error:
        sys.stderr.write(f"{name}: {error}\n")
        if name == "paddle_k8s":
            write_termination_log(str(error), os.environ)
        code = USAGE if isinstance(error, ConfigError) else FAILED
    raise SystemExit(code)


def _exit_by_signal(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(SIGNALLED + number)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `python -m edl.pod k8s_tools ...` or `python -m edl.pod paddle_k8s ...`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, Callable[[], NoReturn]] = {"k8s_tools": k8s_tools, "paddle_k8s": paddle_k8s}
    if not given or given[0] not in commands:
        sys.stderr.write(f"usage: python -m edl.pod {'|'.join(commands)} ...\n")
        raise SystemExit(USAGE)
    sys.argv = given
    commands[given[0]]()
