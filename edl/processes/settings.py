"""The settings of the controller, read once and judged before anything starts.

Every flag is also an environment variable `EDL_<FLAG>`. A value that cannot be used is answered with the flag, the
value, the rule and the remedy, all problems at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from edl.errors import ConfigError
from edl.model.plan import Limits

LogLevel = Literal["debug", "info", "warn", "error", "crit"]
LogFormat = Literal["logfmt", "json"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEVEL_ALIASES = {"dbug": "debug", "warning": "warn", "eror": "error", "critical": "crit", "fatal": "crit"}
_REMEDIES = {
    "kubeconfig": "give the path of a readable kubeconfig",
    "namespace": "give the name of a namespace, such as paddlecloud",
    "listen": "give HOST:PORT, such as 0.0.0.0:8080",
    "log_level": "choose debug, info, warn, error or crit",
    "log_format": "choose logfmt or json",
    "interval_s": "give seconds between 0.1 and 3600, such as 5",
    "max_load_desired": "give a number above 0 and at most 1, such as 0.97",
    "serving_headroom": "give a number of pods from 0 to 100000",
    "consolidate_after_s": "give seconds from 0 (never) to 86400, such as 1800",
    "policy": "choose one of the policies that --help lists",
    "key_file": "give the path of a file; it is made where it does not exist",
    "master_image": "give the name of an image without spaces",
    "watch_namespace": "give the name of a namespace; repeat the flag for more",
    "queues": "give the path of a readable file",
    "record": "give a folder",
}


class ControllerSettings(BaseModel):
    """What `edl controller` was asked to do; the names are those of the flags.

    Attributes:
        kubeconfig: empty takes $KUBECONFIG, ~/.kube/config, then the pod's service account.
        namespace: where the Lease stands.
        watch_namespace: the namespaces whose jobs are ours; none means all.
        policy: empty leaves the choice to the planner.
        queues: file with the quotas of the queues; it is read once, at the start.
        serving_grace_s: how long kube-scheduler's own preemption goes first; not a flag.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: str = ""
    namespace: str = "paddlecloud"
    listen: str = "0.0.0.0:8080"
    log_level: LogLevel = "info"
    log_format: LogFormat = "logfmt"
    interval_s: Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False)] = 5.0
    max_load_desired: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    serving_headroom: Annotated[int, Field(ge=0, le=100_000)] = 0
    consolidate_after_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 0.0
    policy: str = ""
    queues: Path | None = None
    key_file: Path | None = None
    master_image: str = ""
    watch_namespace: tuple[str, ...] = ()
    once: bool = False
    dry_run: bool = False
    record: Path | None = None
    no_leader_election: bool = False
    serving_grace_s: Annotated[float, Field(ge=0, le=60)] = 2.0

    @field_validator("log_level", mode="before")
    @classmethod
    def _know_aliases(cls, value: object) -> object:
        word = value.lower() if isinstance(value, str) else value
        return _LEVEL_ALIASES.get(word, word) if isinstance(word, str) else word

    @field_validator("namespace")
    @classmethod
    def _check_namespace(cls, value: str) -> str:
        return _namespace(value)

    @field_validator("watch_namespace")
    @classmethod
    def _check_namespaces(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_namespace(name) for name in value))

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        _, colon, port = value.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise ValueError("it has no port between 0 and 65535")
        return value

    @field_validator("master_image")
    @classmethod
    def _check_image(cls, value: str) -> str:
        if any(c.isspace() for c in value):
            raise ValueError("it contains a space")
        return value

    @property
    def limits(self) -> Limits:
        """What plans must keep to, but for the quotas, which stand in a file."""
        return Limits(
            max_load_desired=self.max_load_desired,
            serving_headroom=self.serving_headroom,
            serving_grace_s=self.serving_grace_s,
            consolidate_after_s=self.consolidate_after_s,
        )


def read_settings(flags: Mapping[str, Any]) -> ControllerSettings:
    """Judge what the command line and the environment gave; a flag that is None was not given.

    Raises:
        ConfigError: one line for each value that cannot be used.
    """
    try:
        return ControllerSettings.model_validate({k: v for k, v in flags.items() if v is not None})
    except ValidationError as error:
        raise ConfigError("\n".join(_sentence(entry) for entry in error.errors())) from error


def _namespace(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError("it is no namespace: at most 63 lowercase letters, digits and hyphens")
    return value


def _sentence(entry: ErrorDetails) -> str:
    field = str(entry["loc"][0]) if entry["loc"] else "settings"
    flag = "--" + field.replace("_", "-")
    rule = entry["msg"].removeprefix("Value error, ")
    rule = rule[:1].lower() + rule[1:]
    return f"{flag} {str(entry['input'])[:100]!r}: {rule}; {_REMEDIES.get(field, 'see --help')}"
