"""The two formats of the log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from edl.observability.logs import JsonFormatter, LogfmtFormatter, configure, log_event


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of edl; the fixture restores the root logger."""
    root, ours = logging.getLogger(), logging.getLogger("edl")
    before = (root.handlers[:], root.level, ours.level)
    yield logging.getLogger("edl.test")
    root.handlers[:], level, own = before
    root.setLevel(level)
    ours.setLevel(own)


def record(message: str = "done", level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    entry = logging.LogRecord("edl.test", level, "file", 1, message, None, None)
    entry.created = 1767607200.0
    entry.fields = fields
    return entry


def test_the_line_that_users_of_the_original_look_for() -> None:
    resource = "{NodeCount:8 GPURequest:0 Nodes:{NodesCPUIdleMilli:map[node-1:1800]}}"
    line = LogfmtFormatter().format(record("Cluster.InquiryResource done", logging.DEBUG, resource=resource))
    assert line == f't=2026-01-05T10:00:00+0000 lvl=dbug msg="Cluster.InquiryResource done" resource="{resource}"'


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (logging.DEBUG, "dbug"),
        (logging.INFO, "info"),
        (logging.WARNING, "warn"),
        (logging.ERROR, "eror"),
        (logging.CRITICAL, "crit"),
        (25, "info"),
        (1, "dbug"),
    ],
)
def test_levels_have_the_names_of_log15(level: int, word: str) -> None:
    assert f" lvl={word} " in LogfmtFormatter().format(record(level=level))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("ads/ctr", "ads/ctr"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nbreak\ttab\r", r'"line\nbreak\ttab\r"'),
        ("bell\x07", r'"bell\u0007"'),
        ("", '""'),
        ("größe", "größe"),
        (True, "true"),
        (1.5, "1.500"),
        (3, "3"),
    ],
)
def test_values_with_spaces_or_special_characters_are_quoted(value: object, written: str) -> None:
    assert LogfmtFormatter().format(record(v=value)).endswith(f" v={written}")


def test_a_message_with_line_breaks_stays_one_line() -> None:
    assert "\n" not in LogfmtFormatter().format(record("a\nb", v="c\u2028d\ne"))


def test_json_has_the_same_entries() -> None:
    assert json.loads(JsonFormatter().format(record("two words", job="ads/ctr", target=7))) == {
        "t": "2026-01-05T10:00:00+0000",
        "lvl": "info",
        "msg": "two words",
        "job": "ads/ctr",
        "target": 7,
    }


@pytest.mark.parametrize("formatter", [JsonFormatter(), LogfmtFormatter()])
def test_nothing_that_is_logged_is_a_command_for_the_terminal(formatter: logging.Formatter) -> None:
    hostile = "\x1b[2J \x9b31m \x7f \u202e \r\n t=2026-01-01 lvl=info msg=forged"
    line = formatter.format(record(hostile, job=hostile))
    assert line.isprintable()


def test_fields_without_a_value_are_left_out(log: logging.Logger) -> None:
    stream = io.StringIO()
    configure("info", "logfmt", stream)
    log_event(log, logging.INFO, "action", pod=None, message="no")
    assert stream.getvalue().endswith("lvl=info msg=action message=no\n")


def test_other_libraries_log_warnings_and_above_only(log: logging.Logger) -> None:
    stream = io.StringIO()
    configure("debug", "logfmt", stream)
    log_event(log, logging.DEBUG, "ours")
    logging.getLogger("aiohttp").debug("theirs")
    logging.getLogger("aiohttp").warning("loud")
    lines = stream.getvalue().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["lvl=dbug msg=ours", "lvl=warn msg=loud logger=aiohttp"]


def test_an_exception_is_one_line_with_its_stack(log: logging.Logger) -> None:
    stream = io.StringIO()
    configure("info", "logfmt", stream)
    try:
        raise ValueError("bad value")
    except ValueError:
        log.exception("failed")
    assert 'err="ValueError: bad value"' in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
