"""All built-in kinds."""

from __future__ import annotations

from edl.sandbox.apiserver.kinds.groups import cluster, core, rights, workloads
from edl.sandbox.apiserver.kinds.kind import Kind


def builtin_kinds() -> list[Kind]:
    """Every built-in kind, in the order of discovery."""
    return [*core.KINDS, *workloads.KINDS, *cluster.KINDS, *rights.KINDS, *rights.REVIEWS]
