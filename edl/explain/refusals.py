"""Says in a few words who rejects the pods of a job, read from the answer of the API server.

The API server answers in free text. What is recognised here is what its own admission plugins write; any other answer
is named by its reason.
"""

from __future__ import annotations

import re

from edl.model.status import Reason

_SENTENCES = (
    (
        re.compile(r"exceeded quota: ([-a-z0-9.]+)"),
        Reason.QUOTA_REACHED,
        "ResourceQuota {0} of its namespace is used up",
    ),
    (
        re.compile(r"failed quota: ([-a-z0-9.]+): must specify (.+?)(?: \(|;|$)"),
        Reason.PODS_REFUSED,
        "ResourceQuota {0} requires that its pods specify {1}",
    ),
    (re.compile(r'violates PodSecurity "([^"]+)"'), Reason.PODS_REFUSED, 'PodSecurity "{0}" rejects its pods'),
    (
        re.compile(r'admission webhook "([^"]+)" denied'),
        Reason.PODS_REFUSED,
        'admission webhook "{0}" rejects its pods',
    ),
    (
        re.compile(r'failed calling webhook "([^"]+)"'),
        Reason.PODS_REFUSED,
        'admission webhook "{0}" does not answer',
    ),
    (
        re.compile(r"ValidatingAdmissionPolicy '([^']+)'"),
        Reason.PODS_REFUSED,
        "ValidatingAdmissionPolicy {0} rejects its pods",
    ),
    (
        re.compile(r"((?:maximum|minimum) [-\w./]+ usage per \w+ is [^,;]+)"),
        Reason.PODS_REFUSED,
        "a LimitRange of its namespace rejects its pods: {0}",
    ),
)


def who_refuses(reason: str, answer: str) -> tuple[Reason, str]:
    """Say who rejects the pods of a job, and why.

    Args:
        reason: the PascalCase reason of the rejection.
        answer: the message of the API server.
    """
    for pattern, kind, sentence in _SENTENCES:
        if found := pattern.search(answer):
            return kind, sentence.format(*found.groups())
    return Reason.PODS_REFUSED, f"the API server rejects its pods ({reason or 'without a reason'})"
