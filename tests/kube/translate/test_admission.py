"""Which webhooks and policies of saved files may meet new pods."""

from __future__ import annotations

import pytest

from edl.kube.translate.admission import Rule, WebhookConfiguration, not_asked

PODS = Rule([""], ["pods"], ["CREATE"])


@pytest.mark.parametrize(
    "rule",
    [
        PODS,
        Rule(["*"], ["*"], ["*"]),
        Rule(["apps", ""], ["deployments", "pods"], ["UPDATE", "CREATE"]),
        Rule([""], ["*/*"], ["CREATE"]),
    ],
)
def test_a_rule_for_the_creation_of_pods_meets_them(rule: Rule) -> None:
    assert rule.meets_new_pods


@pytest.mark.parametrize(
    "rule",
    [
        Rule(),
        Rule(["apps"], ["pods"], ["CREATE"]),
        Rule([""], ["pods/exec"], ["CREATE"]),
        Rule([""], ["pods"], ["DELETE"]),
    ],
)
def test_any_other_rule_does_not(rule: Rule) -> None:
    assert not rule.meets_new_pods


def test_a_configuration_without_webhooks_is_no_reason_to_warn() -> None:
    assert list(not_asked([("MutatingWebhookConfiguration", WebhookConfiguration())])) == []
