"""How often the masters of all jobs are called, and how long a report is waited for."""

from __future__ import annotations

from dataclasses import dataclass

from edl.lifecycle.measurement import WINDOW_S


@dataclass(frozen=True, slots=True)
class CallPace:
    """How often masters are called.

    Attributes:
        interval_s: between two calls to one master.
        calls_per_s: to all masters together; with many jobs each master is called less often.
        calls_at_once: calls under way to masters that answered the last one in time; as many to all the others.
        calls_of_namespace: the most of them to the masters of one namespace.
        news: reports of one master in a row that change what a plan should follow; then one each `news_s` counts.
        news_s: see `news`.
        prompt_s: the longest time in which a master answers in time.
        retry_s, retry_at_most_s: pause after a failed call; doubled each time, with jitter.
        failures_until_log: failed calls in a row before the log says so; a master that starts needs a few.
        report_wait_s: after the end of its trainers, how long a job waits for a report that counts all of their work.
        first_report_wait_s: the same for a job whose data set edl does not know, because its master never reported.
        measured_interval_s: the shortest time between two writes of measured speeds.
        window_s: see `lifecycle.measurement.observe`.
    """

    interval_s: float = 5.0
    calls_per_s: float = 50.0
    calls_at_once: int = 16
    calls_of_namespace: int = 4
    news: int = 10
    news_s: float = 60.0
    prompt_s: float = 1.0
    retry_s: float = 0.5
    retry_at_most_s: float = 10.0
    failures_until_log: int = 4
    report_wait_s: float = 60.0
    first_report_wait_s: float = 15.0
    measured_interval_s: float = 60.0
    window_s: float = WINDOW_S
