"""All planted bugs."""

from __future__ import annotations

from tests.planted import (
    Bug,
    api_answers,
    controller,
    histories,
    install_and_cli,
    kube,
    ledger,
    lifecycle,
    planner,
    pod,
)

BUGS = tuple(
    value
    for module in (lifecycle, controller, histories, planner, kube, api_answers, ledger, pod, install_and_cli)
    for value in vars(module).values()
    if isinstance(value, Bug)
)
