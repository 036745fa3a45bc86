"""Plans: how long a decision takes, how good a plan is, and how decisions fail."""

from __future__ import annotations

from edl.errors import PlanFailure
from edl.model.cluster import ClusterSnapshot
from edl.model.plan import CUT_STAGES, ScalePlan
from edl.observability.metric_groups.declarations import (
    CounterMetric,
    Dashboard,
    GaugeMetric,
    HistogramMetric,
    Panel,
)
from edl.observability.metric_groups.events import ControllerMetricGroup

_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class PlanMetrics(ControllerMetricGroup):
    """Plans and failed decisions."""

    title = "Plans"

    decision_seconds = HistogramMetric(
        "edl_decision_seconds",
        "Duration of a decision.",
        buckets=_BUCKETS_S,
        panels=(
            Panel(
                Dashboard.SCALING,
                "Duration of a decision",
                tuple(
                    (f"histogram_quantile({q}, sum by (le) (rate(edl_decision_seconds_bucket[5m])))", f"{q:g}")
                    for q in (0.5, 0.95, 0.99)
                ),
                "Quantiles. A decision fails after 10 s; edl then uses the last plan without its growth.",
                "s",
            ),
        ),
    )
    gap = GaugeMetric(
        "edl_plan_gap_ratio",
        "How far the last plan may be below the certified bound, as a part of the bound.",
        panels=(
            Panel(
                Dashboard.SCALING,
                "Distance of the plan from the bound",
                (("max(edl_plan_gap_ratio)", "gap"),),
                "The optimum is between the plan and the bound. At 0 the plan is optimal.",
                "percentunit",
            ),
        ),
    )
    cut = CounterMetric(
        "edl_plans_cut_short_total",
        "Plans that the deadline cut short, by stage: they keep every rule and may give less than they could.",
        ("stage",),
        {"stage": CUT_STAGES},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Plans cut short per minute",
                (("60 * sum by (stage) (rate(edl_plans_cut_short_total[5m]))", "{{stage}}"),),
                "The decision ended at its deadline before this stage was finished; the next one goes on.",
            ),
        ),
    )
    costliest = GaugeMetric(
        "edl_planner_costliest_job_seconds",
        "What the costliest job of the last decision cost by its own lists: pods, affinity, tolerations.",
        ("namespace", "job"),
        panels=(
            Panel(
                Dashboard.SCALING,
                "Costliest job of a decision",
                (("max by (namespace, job) (edl_planner_costliest_job_seconds)", "{{namespace}}/{{job}}"),),
                "CPU seconds that its own fields cost. If it is far above the others, shorten its lists.",
                "s",
            ),
        ),
    )
    refused = CounterMetric("edl_plans_refused_total", "Plans that broke a rule and were dropped.")
    failures = CounterMetric(
        "edl_decision_failures_total",
        "Decisions that failed, by failure.",
        ("failure",),
        {"failure": tuple(failure.value for failure in PlanFailure)},
        panels=(
            Panel(
                Dashboard.SCALING,
                "Failed decisions per minute",
                (
                    ("60 * sum by (failure) (rate(edl_decision_failures_total[5m]))", "{{failure}}"),
                    ("60 * sum(rate(edl_plans_refused_total[5m]))", "plan broke a rule"),
                ),
                "After a failed decision edl uses the last plan without its growth.",
            ),
        ),
    )

    def planned(self, snapshot: ClusterSnapshot, plan: ScalePlan) -> None:  # noqa: ARG002 - the event has both
        """Set duration and gap of a plan, and count stages that were cut short; a fallback plan has none of these."""
        if plan.fallback is None:
            self.decision_seconds.observe(plan.seconds)
            self.gap.set(plan.certificate.gap)
            self.costliest.clear()  # one series: the last one may name another job
            if plan.costliest is not None:
                job, seconds = plan.costliest
                self.costliest.labels(job.namespace, job.name).set(seconds)
            for stage in plan.cut:
                self.cut.labels(stage).inc()

    def not_planned(self, failure: PlanFailure) -> None:
        """Count a failed decision."""
        self.failures.labels(failure.value).inc()
        if failure is PlanFailure.REFUSED:
            self.refused.inc()
