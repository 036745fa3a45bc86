"""Names, values and expressions of others stay within their line and command no terminal, in all that is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.rules.device_scenes import CLASS, device, device_class, request, slice_of, template, uses
from tests.worlds.rules.scenes import Object, apart, job, node, nodes, pod, spread

Run = Callable[..., tuple[int, str, str]]

EVIL = "x\x1b[2J\n  FAKE LINE\r\u202e\t" + "y" * 5_000
LINES = f'device.driver == "{CLASS}"\n  &&\n\tdevice.driver != "{EVIL[:40]}"\n'


def scene() -> list[Object]:
    selected = request(selectors=[{"cel": {"expression": LINES}}])
    hostile_node = node(EVIL, labels={"kubernetes.io/hostname": EVIL, EVIL: EVIL})
    hostile_node["status"]["allocatable"][EVIL] = "3"
    wants: Object = {"containers": [{"name": EVIL, "resources": {"requests": {EVIL: "1", "cpu": "1"}}}]}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    policy: Object = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": EVIL, "expression": EVIL}],
    }
    return [
        *nodes(2),
        hostile_node,
        device_class(),
        slice_of("n0", device("a"), device("b")),
        slice_of("n1", device("a")),
        template(),
        template(selected, name="lines"),
        pod("apart-0", **wants, affinity=apart(app=EVIL), namespace=EVIL),
        pod(EVIL, **wants),
        pod("spread-0", topologySpreadConstraints=spread(EVIL, app=EVIL)),
        pod("claims-0", cpu="1", **uses()),
        job("a", 1, 9, template=uses("lines")),
        job("b", 1, 9, template=uses()),
        job("c", 1, 40, template={"affinity": apart(app=EVIL), "nodeSelector": {EVIL: EVIL}}),
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": EVIL},
            "spec": policy,
        },
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": EVIL}, "spec": {"hard": {"cpu": EVIL}}},
    ]


@pytest.mark.parametrize(
    "command", [("plan",), ("plan", "-o", "wide"), ("explain", "a"), ("explain", "b"), ("explain", "c")]
)
def test_what_a_command_prints_is_lines_of_plain_text(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": scene()}))
    code, out, err = run(*command, "-f", str(path))
    assert code == 0
    for line in (*out.split("\n"), *err.split("\n")):
        assert line == "" or line.isprintable()
        assert not line.strip().startswith(("FAKE", "&&", "device."))
        assert len(line) <= 4_100


def test_a_selector_of_several_lines_is_one_line_in_the_name_of_its_devices(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": scene()}))
    _, out, _ = run("plan", "-o", "json", "-f", str(path))
    found: list[dict[str, Any]] = json.loads(out)["prices"]
    names = {price["resource"] for price in found if price["resource"].startswith("device of class")}
    assert all("\n" not in name and len(name) <= 160 for name in names)
