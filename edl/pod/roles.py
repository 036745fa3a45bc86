"""What runs in the pods of a job: `paddle_k8s` starts a role, `k8s_tools` tells where the others are.

Standard library only: a trainer's image installs the base of edl and nothing else. Names, selectors, outputs and
variables are those of the original's scripts, which people's images and entrypoints call. Two of their faults are not
kept: names are not sorted as text, and too many failures do not end with 0.

`paddle_k8s` is the first process of its container. It waits for whom its role needs, adds to the environment what is
known only now, and runs the entrypoint (`edl.pod.entrypoint`).
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
from edl.pod.entrypoint import run_entrypoint, say
from edl.pod.pods import PHASES, find_source
from edl.pod.tools import Tools
from edl.termination_log import write_termination_log

FAILED, USAGE, KILLED = 1, 2, 128
_PSERVER, _TRAINER = "PSERVER", "TRAINER"
_ROLES = {_PSERVER: _PSERVER, _TRAINER: _TRAINER, "WORKER": _TRAINER}
_JOURNAL = "/var/lib/edl/journal"

Environment = dict[str, str]


def paddle_k8s() -> NoReturn:
    """The command `paddle_k8s`."""
    parser = argparse.ArgumentParser("paddle_k8s", description="Start a role of a TrainingJob in its pod.")
    parser.add_argument("role", choices=list(_STARTS), metavar="|".join(_STARTS))
    parser.add_argument("version", nargs="?", choices=["v2"], help="accepted for files of the original; v1 is gone")
    start = _STARTS[parser.parse_args().role]
    _run(lambda: start(dict(os.environ)), "paddle_k8s")


def k8s_tools() -> NoReturn:
    """The command `k8s_tools`."""
    parser = argparse.ArgumentParser("k8s_tools", description="Find the pods of a TrainingJob from within.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    given: dict[str, dict[str, Callable[[str], object]]] = {
        "wait_pods_running": {"count": _whole},
        "wait_containers_ready": {},
        "fetch_ips": {},
        "fetch_endpoints": {"port": _port},
        "fetch_id": {},
        "count_pods_by_phase": {"phase": _phase},
    }
    for command, values in given.items():
        one = commands.add_parser(command)
        one.add_argument("selector", help="labels of the pods, such as paddle-job=NAME")
        for name, kind in values.items():
            one.add_argument(name, type=kind)
    asked = parser.parse_args()
    _run(lambda: _answer(asked, dict(os.environ)), "k8s_tools")


def _answer(asked: argparse.Namespace, environment: Environment) -> int:
    tools = Tools(find_source(environment))
    match asked.command:
        case "wait_pods_running":
            tools.wait_pods_running(asked.selector, asked.count)
        case "wait_containers_ready":
            tools.wait_containers_ready(asked.selector)
        case "fetch_ips":
            say(tools.fetch_ips(asked.selector))
        case "fetch_endpoints":
            say(tools.fetch_endpoints(asked.selector, asked.port))
        case "fetch_id":
            say(str(tools.fetch_id(asked.selector, *_who(environment))))
        case _:
            say(str(tools.count_pods_by_phase(asked.selector, asked.phase)))
    return 0


def _start_fluid(environment: Environment) -> int:
    """Pservers and trainers of a fixed number, each of which is told of all the others."""
    role = _role(environment)
    tools = Tools(find_source(environment))
    _await_pservers(tools, environment, "PADDLE_PSERVERS_NUM")
    if role == _TRAINER:
        _await_trainers(tools, environment, "PADDLE_TRAINERS_NUM")
    known = _tell_of_all(tools, environment, role)
    if role == _TRAINER:
        _check_failed(tools, environment, 1)
    return run_entrypoint(_entry(environment), known)


def _start_pserver(environment: Environment) -> int:
    """A pserver of a gang."""
    tools = Tools(find_source(environment))
    _await_pservers(tools, environment, "PSERVERS")
    return _run_in_workspace(_tell_of_all(tools, environment, _PSERVER))


def _start_trainer(environment: Environment) -> int:
    """A trainer of a gang, where no trainer may fail."""
    tools = Tools(find_source(environment))
    _check_failed(tools, environment, 0)
    _await_pservers(tools, environment, "PSERVERS")
    _await_trainers(tools, environment, "TRAINERS")
    known = _tell_of_all(tools, environment, _TRAINER)
    known["PADDLE_INIT_PSERVERS"] = tools.fetch_ips(_selector(environment, _PSERVER))
    known["PADDLE_INIT_TRAINER_ID"] = known["PADDLE_TRAINER_ID"]
    return _run_in_workspace(known)


def _start_new_pserver(environment: Environment) -> int:
    """A pserver of a fault-tolerant job: it may come back while the others run."""
    _await_master(Tools(find_source(environment)), environment)
    return _run_in_workspace(_tell_of_names(environment))


def _start_new_trainer(environment: Environment) -> int:
    """A trainer of a fault-tolerant job: others come and go while it runs."""
    tools = Tools(find_source(environment))
    _check_failed(tools, environment, _number(environment, "TRAINERS"))
    _await_pservers(tools, environment, "PSERVERS")
    _await_master(tools, environment)
    return _run_in_workspace(_tell_of_names(environment))


def _start_master(environment: Environment) -> int:
    """The data master, for who starts it by hand: the controller calls `edl master` itself."""
    program = shutil.which("edl", path=environment.get("PATH"))
    if program is None:
        raise ConfigError("start_master: there is no command edl on PATH; install edl with its extra `controller`")
    journal, token = environment.get("EDL_JOURNAL") or _JOURNAL, environment.get("EDL_TOKEN_FILE", "")
    command = ["edl", "master", "--listen", "0.0.0.0:8080", "--journal", journal, "--token-file", token]
    os.execve(program, command, environment)  # noqa: S606 no shell is wanted


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
        tools.wait_pods_running(f"paddle-job-master={_needed(environment, 'PADDLE_JOB_NAME')}", 1)


def _check_failed(tools: Tools, environment: Environment, most: int) -> None:
    """The original said so and ended with 0, which reads as success."""
    if tools.too_many_failed(_selector(environment, _TRAINER), most):
        raise PermanentError(
            f"job {environment['PADDLE_JOB_NAME']}: failed trainers are beyond the threshold of {most}, so this pod"
            " does not start; look at the logs of those that failed, then delete them"
        )


def _tell_of_all(tools: Tools, environment: Environment, role: str) -> Environment:
    """The environment with the addresses of a job whose pods do not change."""
    place = str(tools.wait_listed(_selector(environment, role), *_who(environment)))
    return {
        **environment,
        "PADDLE_PSERVERS": tools.fetch_endpoints(
            _selector(environment, _PSERVER), _number(environment, "PADDLE_PORT")
        ),
        "PADDLE_TRAINER_IPS": tools.fetch_ips(_selector(environment, _TRAINER)),
        "PADDLE_TRAINER_ID": place,
        "PADDLE_PSERVER_ID": place,
    }


def _tell_of_names(environment: Environment) -> Environment:
    """The environment with what stays true while pods come and go: names for addresses, indices for places."""
    job, port = _needed(environment, "PADDLE_JOB_NAME"), _number(environment, "PADDLE_PORT")
    pservers = [f"{job}-pserver-{i}.{job}:{port + i}" for i in range(_number(environment, "PSERVERS"))]
    index = str(_number(environment, "EDL_INDEX"))
    return {
        **environment,
        "PADDLE_PSERVERS": ",".join(pservers),
        "PADDLE_TRAINER_ID": index,
        "PADDLE_PSERVER_ID": index,
    }


def _run_in_workspace(environment: Environment) -> int:
    """Run the entrypoint where the code of the job is, which Python finds too."""
    workspace = environment.get("TRAINER_PACKAGE", "")
    if workspace:
        try:
            os.chdir(workspace)
        except OSError as error:
            raise ConfigError(
                f"workspace {workspace}: cannot be entered: {error}; look at spec.trainer.workspace and at the image"
            ) from error
        path = environment.get("PYTHONPATH")
        environment = {**environment, "PYTHONPATH": f"{workspace}:{path}" if path else workspace}
    return run_entrypoint(_entry(environment), environment)


def _entry(environment: Environment) -> str:
    return _needed(environment, "ENTRY")


def _role(environment: Environment) -> str:
    word = environment.get("PADDLE_TRAINING_ROLE") or environment.get("TRAINING_ROLE", "")
    if word.upper() not in _ROLES:
        raise ConfigError(f"PADDLE_TRAINING_ROLE {word!r}: no such role; set one of {', '.join(_ROLES)}")
    return _ROLES[word.upper()]


def _selector(environment: Environment, role: str) -> str:
    label = "paddle-job" if role == _TRAINER else "paddle-job-pserver"
    return f"{label}={_needed(environment, 'PADDLE_JOB_NAME')}"


def _who(environment: Environment) -> tuple[str, str]:
    return environment.get("POD_NAME", ""), environment.get("POD_IP", "")


def _needed(environment: Environment, name: str) -> str:
    if not environment.get(name):
        raise ConfigError(f"{name} is empty: the controller sets it in every pod of a job; set it, or start it there")
    return environment[name]


def _number(environment: Environment, name: str) -> int:
    text = _needed(environment, name)
    if not text.isdecimal():
        raise ConfigError(f"{name} {text!r}: not a number; the controller sets it in every pod of a job")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 1..65535")
    return int(text)


def _phase(text: str) -> str:
    if text not in PHASES:
        raise argparse.ArgumentTypeError(f"{text!r} is no phase of a pod; give one of {', '.join(PHASES)}")
    return text


def _run(work: Callable[[], int], name: str) -> NoReturn:
    """Until the entrypoint runs, signals end us: the first process of a pod must ask for that."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        code = work()
    except EdlError as error:
        sys.stderr.write(f"{name}: {error}\n")
        if name == "paddle_k8s":
            write_termination_log(str(error), os.environ)
        code = USAGE if isinstance(error, ConfigError) else FAILED
    raise SystemExit(code)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(KILLED + number)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """`python -m edl.pod k8s_tools ...` or `paddle_k8s ...`, where no console scripts are installed."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands: dict[str, Callable[[], NoReturn]] = {"k8s_tools": k8s_tools, "paddle_k8s": paddle_k8s}
    if not words or words[0] not in commands:
        sys.stderr.write(f"usage: python -m edl.pod {'|'.join(commands)} ...\n")
        raise SystemExit(USAGE)
    sys.argv = words
    commands[words[0]]()
