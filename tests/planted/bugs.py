"""All planted bugs."""

from __future__ import annotations

from tests.planted import (
    Bug,
    acting,
    controller,
    histories,
    install_and_cli,
    kube,
    ledger,
    lifecycle,
    masters,
    planner,
    pod,
)

BUGS = tuple(
    value
    for module in (lifecycle, masters, controller, acting, histories, planner, kube, ledger, pod, install_and_cli)
    for value in vars(module).values()
    if isinstance(value, Bug)
)
