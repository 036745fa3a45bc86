"""The flags of `edl master`."""

from __future__ import annotations

import pytest

from edl.errors import ConfigError
from edl.master.bodies import DatasetBody
from edl.master.master import ExpectedProgress
from edl.settings.flags import read_settings
from edl.settings.master import MasterSettings

NEEDED = {"journal": "j", "token_file": "t"}


def test_the_defaults_are_those_of_the_interface() -> None:
    made = read_settings(MasterSettings, NEEDED)
    assert (made.listen, made.lease_ttl_s, made.on_ledger_lost) == ("0.0.0.0:8080", 30.0, "Fail")
    assert (made.dataset, made.expect_progress, made.tls_cert, made.tls_key) == (None, None, None, None)


def test_text_becomes_values() -> None:
    given = {"dataset": '{"source": "index:9", "shardSize": 3}', "expect_progress": "3:120"}
    made = read_settings(MasterSettings, {**NEEDED, **given})
    assert made.dataset == DatasetBody(source="index:9", shard_size=3)
    assert made.expect_progress == ExpectedProgress(3, 120)


def test_an_empty_text_counts_as_unset() -> None:
    given = {"dataset": "", "expect_progress": "", "tls_cert": "", "tls_key": "", "controller_token_file": ""}
    assert read_settings(MasterSettings, {**NEEDED, **given}) == read_settings(MasterSettings, NEEDED)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "{"}, "--dataset '{': Input data was truncated; give a JSON object such as {\"source\":"),
        ({"lease_ttl_s": "-1"}, "--lease-ttl-s '-1': it must be a number from 0.1 up to 3600; give seconds"),
        (
            {"expect_progress": "3"},
            "--expect-progress '3': it is not an epoch and a number of positions; give EPOCH:",
        ),
        ({"expect_progress": "a:b"}, "--expect-progress 'a:b': it is not an epoch"),
        ({"on_ledger_lost": "x"}, "--on-ledger-lost 'x': there is no such choice; choose Fail or RestartEpoch"),
        ({"tls_key": "k"}, "--tls-cert and --tls-key must be given together; give both, or neither"),
        ({"journal": ""}, "--journal '': it is empty; give the path of a folder"),
        (
            {"journal": None, "token_file": None},
            "--journal is missing; give the path of a folder, such as ./journal\n",
        ),
    ],
)
def test_a_wrong_value_is_reported_with_its_rule_and_its_remedy(given: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(MasterSettings, {**NEEDED, **given})
    assert str(caught.value).startswith(message)
