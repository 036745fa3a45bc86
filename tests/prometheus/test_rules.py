"""Each alert fires under its fault after its time, and not before; promtool computes both."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from edl.install.alerts import ALERTS
from edl.observability.metrics import Metrics

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yaml"
JOB = 'namespace="ads",job="ctr"'


@dataclass(frozen=True)
class Fault:
    """The series under a fault, one value a minute, and when its alert fires.

    Attributes:
        series: name with labels -> values, in promtool's notation: `1+2x3` is 1, 3, 5, 7.
        quiet_m, fires_m: minutes at which the alert is not firing yet, and is firing.
    """

    series: dict[str, str]
    quiet_m: int
    fires_m: int


def serving(late_share: int, minutes: int) -> dict[str, str]:
    """100 serving pods a minute; from the eleventh minute on this many of them wait too long."""
    in_time = f"0+100x10 {1000 + 100 - late_share}+{100 - late_share}x{minutes}"
    return {
        'edl_serving_wait_seconds_bucket{le="60.0",behind="training"}': in_time,
        'edl_serving_wait_seconds_count{behind="training"}': f"0+100x{minutes + 11}",
    }


FAULTS = {
    "EdlNobodyLeads": Fault({"edl_leader": "0x10"}, 1, 3),
    "EdlTwoLead": Fault({'edl_leader{instance="a"}': "1x10", 'edl_leader{instance="b"}': "1x10"}, 1, 3),
    "EdlNoStandby": Fault({"edl_leader": "1x20"}, 14, 16),
    "EdlLeadershipFlaps": Fault({"edl_leader": "0 1 0 1 0 1 0 1 0 1"}, 5, 8),
    "EdlNoRoundSucceeds": Fault({'edl_rounds_total{result="acted"}': "0+12x10 120x30"}, 20, 27),
    "EdlPlanRefused": Fault({"edl_plans_refused_total": "0x5 1x5"}, 4, 7),
    "EdlNoPlan": Fault({'edl_decision_failures_total{failure="bug"}': "0x5 2+2x10"}, 5, 10),
    "EdlDecisionsSlow": Fault(
        {
            'edl_decision_seconds_bucket{le="5.0"}': "0x30",
            'edl_decision_seconds_bucket{le="10.0"}': "0+9x30",
            'edl_decision_seconds_bucket{le="+Inf"}': "0+9x30",
        },
        10,
        13,
    ),
    "EdlPlanFarFromBound": Fault({"edl_plan_gap_ratio": "0.2x40"}, 29, 31),
    "EdlServingWaits": Fault({"edl_serving_waiting_pods": "3x10", "edl_serving_short_pods": "1x10"}, 2, 4),
    "EdlServingShort": Fault({"edl_serving_short_pods": "1x10"}, 4, 6),
    "EdlServingBudgetBurnsFast": Fault(serving(20, 60), 10, 70),
    "EdlServingBudgetBurnsSlowly": Fault(serving(8, 120), 20, 60),
    "EdlServingUnplaceable": Fault({"edl_serving_unplaceable_pods": "1x20"}, 9, 11),
    "EdlPodsLinger": Fault({"edl_lingering_pods": "1x10"}, 4, 6),
    "EdlWritesRefused": Fault({'edl_actions_total{action="CreatePod",result="Refused"}': "0x5 1+1x10"}, 6, 14),
    "EdlFilesRefused": Fault({"edl_rejected_files": "1x10"}, 4, 6),
    "EdlObjectsLeftOut": Fault({"edl_quarantined_objects": "1x10"}, 4, 6),
    "EdlJobsStartSlowly": Fault({'edl_jobs{phase="Creating"}': "1x40"}, 29, 31),
    "EdlJobsWait": Fault({'edl_jobs{phase="Pending"}': "2x130"}, 119, 121),
    "EdlJobIsTossedAbout": Fault({f'edl_resizes_total{{{JOB},direction="down"}}': "0+1x60"}, 20, 55),
    "EdlLendingLasts": Fault({"edl_slowed_trainers": "4x20"}, 14, 16),
    "EdlNodeAvoided": Fault({'edl_avoided_nodes{state="avoided"}': "0x5 1x10"}, 4, 7),
    "EdlMasterDiskFull": Fault({f"edl_master_journal_blocked{{{JOB}}}": "1x10"}, 0, 2),
    "EdlMasterAlone": Fault(
        {f"edl_master_sessions{{{JOB}}}": "0x20", f'edl_master_positions{{{JOB},place="todo"}}': "40x20"}, 9, 11
    ),
    "EdlRecordsLeftOut": Fault({f'edl_master_positions{{{JOB},place="quarantined"}}': "0x3 2x5"}, 2, 5),
}


def promtool(*words: str, stdin: bytes = b"") -> str:
    """What promtool prints; it must succeed."""
    command = [shutil.which("promtool") or "promtool", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, text
    return text


def case(alert: str, fault: Fault) -> dict[str, object]:
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    times = ((fault.quiet_m, 0), (fault.fires_m, 1))
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in fault.series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": value}]}
            for minute, value in times
        ],
    }


def judge(folder: Path, test: dict[str, object]) -> None:
    """Let promtool run one test of the rules; it must pass."""
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    file = folder / "alerts_test.yaml"
    file.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(file))


def test_every_alert_has_a_fault() -> None:
    assert set(FAULTS) == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", sorted(FAULTS))
def test_an_alert_fires_under_its_fault_after_its_time(alert: str, tmp_path: Path) -> None:
    judge(tmp_path, case(alert, FAULTS[alert]))


def test_a_standby_knows_no_plan_and_does_not_pass_short_pods_as_waiting_ones(tmp_path: Path) -> None:
    leader, standby = '{instance="leader"}', '{instance="standby"}'
    series = {
        f"edl_serving_waiting_pods{leader}": "1x10",
        f"edl_serving_short_pods{leader}": "1x10",
        f"edl_serving_waiting_pods{standby}": "1x10",
        f"edl_serving_short_pods{standby}": "0x10",
    }
    test = case("EdlServingWaits", Fault(series, 4, 9))
    test["promql_expr_test"] = [
        {"expr": 'ALERTS{alertname="EdlServingWaits"}', "eval_time": f"{minute}m", "exp_samples": []}
        for minute in (4, 9)
    ]
    judge(tmp_path, test)


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_names_and_help_of_metrics_follow_the_conventions() -> None:
    assert promtool("check", "metrics", stdin=Metrics().render()) == ""
