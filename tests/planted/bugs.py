"""All planted bugs."""

from __future__ import annotations

from tests.planted import (
    Bug,
    acting,
    api_answers,
    controller,
    headroom,
    histories,
    install_and_cli,
    kube,
    ledger,
    lending,
    lifecycle,
    masters,
    nodes,
    planner,
    pod,
    rest,
    small_scope,
    storms,
    tiers,
    topology,
)

_MODULES = (
    *(lifecycle, masters, controller, acting, rest, histories, small_scope, storms),
    *(planner, topology, tiers, lending, headroom, nodes, kube, api_answers, ledger, pod, install_and_cli),
)
BUGS = tuple(value for module in _MODULES for value in vars(module).values() if isinstance(value, Bug))
"""In the order in which `make planted` plants them."""
