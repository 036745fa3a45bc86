"""The roles that edl installs for users."""

from __future__ import annotations

from edl.install.objects import rights


def test_no_role_of_edl_lets_a_user_write_queues() -> None:
    """Who may change a Queue sets the quota of a team; the controller writes only what it shows in the status."""
    found = {
        (role["metadata"]["name"], resource, verb)
        for role in rights()
        for rule in role.get("rules", ())
        for resource in rule.get("resources", ())
        if resource.startswith(("queues", "*"))
        for verb in rule["verbs"]
    }
    reads = {"get", "list", "watch"}
    writes = {one for one in found if one[2] not in reads}
    assert writes == {("training-job-controller", "queues/status", "patch")}
    assert {one for one in found if one[0] == "edl-queues-view"} == {("edl-queues-view", "queues", v) for v in reads}
