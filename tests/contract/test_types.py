"""The recorded types and field numbers are those of the real API server."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.record_types import ROOTS, TYPES_FILE, render_types
from tests.contract.servers import REAL, Server

NUMBERS: dict[str, dict[str, str]] = json.loads(TYPES_FILE.with_name("builtin_numbers.json").read_text())
TYPES: dict[str, Any] = json.loads(TYPES_FILE.read_text())


def test_the_recorded_types_are_those_of_the_real_server(servers: dict[str, Server]) -> None:
    kube = servers[REAL].kube

    def read(path: str) -> dict[str, Any]:
        where, _, query = path.partition("?")
        return kube.request("GET", where, query=dict([query.split("=", 1)]) if query else None)

    assert render_types(read) == TYPES_FILE.read_text(), "run python -m tests.contract.record_types"


def test_every_recorded_type_has_its_field_numbers() -> None:
    for name in ROOTS:
        fields = {text.split()[0] for text in NUMBERS[name].values()}
        assert TYPES[name].get("properties", {}).keys() - {"apiVersion", "kind"} <= fields, name
