"""The flags of `edl master` and of `edl master status`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from edl.master.bodies import DatasetBody, read_body
from edl.master.master import ExpectedProgress
from edl.settings.flags import Flag, Settings
from edl.settings.shared import Address, OptionalPath, RequiredPath, TableOutputSettings

LostJournal = Literal["Fail", "RestartEpoch"]


def _dataset_of(value: object) -> object:
    return read_body(value.encode(), DatasetBody) if isinstance(value, str) and value else value or None


def _progress_of(value: object) -> object:
    if not isinstance(value, str) or not value:
        return value or None
    epoch, _, done = value.partition(":")
    if not epoch.isdecimal() or not done.isdecimal():
        raise ValueError("it is not an epoch and a number of positions")
    return ExpectedProgress(int(epoch), int(done))


class MasterSettings(Settings):
    """The values of the flags of `edl master`."""

    listen: Annotated[
        Address,
        Flag(
            "Address at which trainers and the controller reach the master.",
            metavar="HOST:PORT",
            remedy="give HOST:PORT, such as 0.0.0.0:8080",
        ),
    ] = "0.0.0.0:8080"
    journal: Annotated[
        RequiredPath,
        Flag(
            "Folder of the journal; each master needs its own.",
            metavar="DIR",
            remedy="give the path of a folder, such as ./journal",
        ),
    ]
    token_file: Annotated[
        RequiredPath,
        Flag(
            "File with the token that trainers must send.",
            metavar="FILE",
            remedy="give the path of a file with the token of the job",
        ),
    ]
    controller_token_file: Annotated[
        OptionalPath,
        Flag(
            "File with the token that the controller must send with the list of trainers that may hold leases.",
            metavar="FILE",
            remedy="give the path of a file with the token of the controller",
            unset="the master accepts no such list and serves every trainer",
        ),
    ] = None
    dataset: Annotated[
        DatasetBody | None,
        BeforeValidator(_dataset_of),
        Flag(
            "Data set, in the form of the body of POST /v1/dataset.",
            metavar="JSON",
            remedy='give a JSON object such as {"source": "index:100000", "shardSize": 1000}',
            unset="the training code sets it",
        ),
    ] = None
    lease_ttl_s: Annotated[
        float,
        Field(ge=0.1, le=3600, allow_inf_nan=False),
        Flag(
            "Time after which a trainer that sends nothing loses its leases.",
            metavar="SECONDS",
            remedy="give seconds, such as 30",
        ),
    ] = 30.0
    tls_cert: Annotated[
        OptionalPath,
        Flag(
            "Certificate, in PEM; with it and --tls-key the master serves https.",
            metavar="FILE",
            remedy="give a PEM file",
            unset="http",
        ),
    ] = None
    tls_key: Annotated[
        OptionalPath,
        Flag("Private key of the certificate, in PEM.", metavar="FILE", remedy="give a PEM file", unset="http"),
    ] = None
    expect_progress: Annotated[
        ExpectedProgress | None,
        BeforeValidator(_progress_of),
        Flag(
            "Progress that the job had made; an empty journal then counts as lost.",
            metavar="EPOCH:DONE",
            remedy="give EPOCH:DONE, such as 3:1200",
            unset="an empty journal is a new one",
        ),
    ] = None
    on_ledger_lost: Annotated[
        LostJournal,
        Flag("If the journal is lost, Fail exits with 1; RestartEpoch begins the epoch of --expect-progress again."),
    ] = "Fail"

    @model_validator(mode="after")
    def _check_tls(self) -> MasterSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("--tls-cert and --tls-key must be given together; give both, or neither")
        return self


class StatusSettings(TableOutputSettings):
    """The values of the flags of `edl master status`."""

    url: Annotated[
        str,
        Flag(
            "Address of the master, such as http://127.0.0.1:8080.",
            metavar="URL",
            remedy="give the address of the master, such as http://127.0.0.1:8080",
            is_positional=True,
        ),
    ]
    token_file: Annotated[
        RequiredPath,
        Flag(
            "File with the token of the job.",
            metavar="FILE",
            remedy="give the path of a file with the token of the job",
        ),
    ]
