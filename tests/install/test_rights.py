"""The roles that edl installs for users, and for those who only look."""

from __future__ import annotations

from edl.install.rights import rights, shadow_account, shadow_role


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


def test_the_role_of_edl_shadow_reads_and_reads_no_secret() -> None:
    role = shadow_role()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    read = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert not read & {"secrets", "configmaps", "leases", "events", "*"}
    assert role in rights()
    assert role in shadow_account()
