"""Stored statuses: what counts as a change."""

from __future__ import annotations

from edl.kube.translate.jobs import read_status
from edl.kube.translate.status_body import status_body
from edl.model.resources import QosClass
from edl.model.status import JobStatus


def test_the_class_alone_is_no_change_because_an_older_definition_drops_it() -> None:
    status = JobStatus(reason="AtMax", qos=QosClass.BURSTABLE)
    body = status_body(status)
    assert read_status({"status": body}) == status
    stored = read_status({"status": {key: value for key, value in body.items() if key != "qosClass"}})
    assert stored is not None
    assert (stored == status, stored.qos) == (True, None)
    assert read_status({"status": body | {"qosClass": "Golden"}}) == status
