"""Which command shows the log of a pod."""

from __future__ import annotations

import pytest

from edl.lifecycle.container_end import cause_of_end, logs_command
from edl.model.names import JobKey, Role
from edl.model.pods import Pod
from tests.worlds.builders import make_shape


def pod(namespace: str, role: Role | None) -> Pod:
    job = None if role is None else JobKey(namespace, "a")
    return Pod(namespace, "a-1", "u", make_shape(), job=job, role=role, exit_code=1)


@pytest.mark.parametrize(
    ("made", "command"),
    [
        (pod("default", Role.TRAINER), "edl logs a"),
        (pod("default", Role.PSERVER), "edl logs a --role pserver"),
        (pod("team", Role.MASTER), "edl logs a --role master -n team"),
        (pod("team", None), "kubectl logs a-1 -n team"),
    ],
)
def test_the_command_names_role_and_namespace_if_they_are_not_the_usual_ones(made: Pod, command: str) -> None:
    assert logs_command(made) == command
    assert f"`{command}`" in cause_of_end(made)
