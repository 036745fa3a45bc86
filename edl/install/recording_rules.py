"""Recording rules: what dashboards and alerts would otherwise compute again at each refresh.

Names follow level:metric:operation. The share of serving pods that waited too long is kept for four windows, because
an alert on how fast an error budget is used compares a long window with a short one.

Source: https://prometheus.io/docs/practices/rules/ and https://sre.google/workbook/alerting-on-slos/
"""

from __future__ import annotations

from dataclasses import dataclass

SERVING_LIMIT_S = 60.0
"""A serving pod should have a node within this time; a trainer may take 30 s of it to end."""

SERVING_OBJECTIVE = 0.99
"""The share of serving pods for which that should hold."""

_WINDOWS = ("5m", "30m", "1h", "6h")


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """One recording rule.

    Attributes:
        labels: the labels of the recorded series.
    """

    name: str
    expr: str
    labels: tuple[str, ...] = ()


def late_serving(window: str) -> str:
    """The recorded share of serving pods, from 0 to 1, that waited longer than the limit."""
    return f"edl:serving_late:ratio_rate{window}"


def _late_in(window: str) -> str:
    in_time = f'sum(rate(edl_serving_wait_seconds_bucket{{le="{SERVING_LIMIT_S}"}}[{window}]))'
    return f"1 - {in_time} / (sum(rate(edl_serving_wait_seconds_count[{window}])) > 0)"


def _by_job(state: str) -> str:
    return f'max by (namespace, job) (edl_job_trainers{{state="{state}"}})'


RECORDING_RULES: tuple[RecordingRule, ...] = (
    *(RecordingRule(late_serving(window), _late_in(window)) for window in _WINDOWS),
    RecordingRule(
        "namespace_job:edl_fulfilment:ratio", f"{_by_job('current')} / {_by_job('max')}", ("namespace", "job")
    ),
    RecordingRule(
        "namespace:edl_trainer_share:ratio",
        f"sum by (namespace) ({_by_job('current')}) / scalar(sum({_by_job('current')}) > 0)",
        ("namespace",),
    ),
)
