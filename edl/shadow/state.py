"""The state of a run of `edl shadow` in a file, so that a later run continues it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edl.errors import ConfigError
from edl.shadow.document import (
    VERSION,
    Agreement,
    Costs,
    Evictions,
    Interval,
    Part,
    Settings,
    Unknown,
)

STATE_FILE, JSON_FILE, PAGE_FILE = "state.json", "report.json", "report.html"


class State(Part):
    """Everything that a report is made from.

    Attributes:
        lengths: how many decisions there were of each class of length; see `costs`.
    """

    api_version: Literal["edl.shadow/v1"] = VERSION
    server: str
    settings: Settings
    started: str
    observed_s: Annotated[float, Field(ge=0)] = 0.0
    agreement: Agreement = Field(default_factory=Agreement)
    evictions: Evictions = Field(default_factory=Evictions)
    unknown: Unknown = Field(default_factory=Unknown)
    costs: Costs = Field(default_factory=Costs)
    lengths: dict[int, int] = Field(default_factory=dict)
    intervals: list[Interval] = Field(default_factory=list)


def open_state(folder: Path, server: str, settings: Settings, started: str) -> State:
    """Read what a former run has left in a folder, or begin anew; the folder is created.

    Args:
        folder: the folder of the reports.
        server: address of the API server.
        settings: how this run decides.
        started: the time now.

    Raises:
        ConfigError: the folder cannot be used, or what is in it is of another cluster or of other settings.
    """
    path = folder / STATE_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return State(server=server, settings=settings, started=started)
        found = State.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--out {folder}: {error.strerror}; give a folder that can be written") from error
    except ValidationError as error:
        raise ConfigError(
            f"--out {folder}: {STATE_FILE} is not the state of a shadow run of this version"
            f" ({error.error_count()} fields do not fit); give another folder, or remove the file"
        ) from error
    if (found.server, found.settings) != (server, settings):
        raise ConfigError(
            f"--out {folder}: {STATE_FILE} is of {_said(found.server, found.settings)}, but this run is of"
            f" {_said(server, settings)}; give another folder, or the same flags"
        )
    return found


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files into a folder, each whole or not at all.

    Args:
        folder: exists.
        texts: file name -> text.

    Raises:
        ConfigError: a file cannot be written.
    """
    for name, text in texts.items():
        temporary = folder / f".{name}.{os.getpid()}"
        try:
            temporary.write_text(text)
            temporary.replace(folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ConfigError(
                f"--out {folder}: {name} cannot be written: {error.strerror}; free space, or give another folder"
            ) from error


def _said(server: str, settings: Settings) -> str:
    asked = f" --as-if-elastic --as-if-min {settings.as_if_min} --as-if-max {settings.as_if_max}"
    return f"{server} with --policy {settings.policy}{asked if settings.as_if_elastic else ''}"
