"""What is kept between runs, and the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from edl.errors import ConfigError
from edl.model.times import text_of
from edl.shadow.chart import MOST_POINTS, chart_of
from edl.shadow.document import Disagreement, Interval, Predicate, Report, Settings
from edl.shadow.page import MOST_ROWS, page_of
from edl.shadow.state import STATE_FILE, State, open_state, write_files
from edl.shadow.summary import length_of, summary_of
from edl.shadow.watcher import Watcher
from tests.worlds.fake_api import FakeClock

SETTINGS = Settings(policy="maxmin", as_if_elastic=True, as_if_min="half", as_if_max="twice")
SERVER = "https://10.0.0.1:6443"


def state() -> State:
    return State(server=SERVER, settings=SETTINGS, started="2026-01-05T10:00:00Z")


def minute(number: int, used: float = 50.0) -> Interval:
    return Interval(
        start=text_of(60.0 * number),
        seconds=60.0,
        capacity={"cpu": 100.0},
        used={"cpu": used},
        training={"cpu": 10.0},
        with_edl={"cpu": 80.0},
        training_with_edl={"cpu": 40.0},
        waiting=0.0,
        waiting_with_edl=0.0,
        jobs_waiting=0.0,
        jobs_waiting_with_edl=0.0,
    )


def report(**more: object) -> Report:
    return Watcher(FakeClock(), state()).report(is_final=True).model_copy(update=more)


class Tags(HTMLParser):
    """The texts and the addresses of a page, and that each element that has an end is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts, self.addresses, self.open = list[str](), list[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in {"meta", "path", "line"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """It is closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_folder_is_made_and_a_state_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    made = open_state(folder, SERVER, SETTINGS, "2026-01-05T10:00:00Z")
    made.observed_s, made.lengths = 12.5, {3: 4}
    write_files(folder, {STATE_FILE: made.model_dump_json(by_alias=True)})
    assert open_state(folder, SERVER, SETTINGS, "later") == made
    assert [path.name for path in folder.iterdir()] == [STATE_FILE]


def test_a_state_of_another_cluster_or_of_other_flags_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {STATE_FILE: state().model_dump_json(by_alias=True)})
    with pytest.raises(ConfigError, match=r"is of https://10.0.0.1:6443 .* but this run is of https://other"):
        open_state(tmp_path, "https://other", SETTINGS, "now")
    other = SETTINGS.model_copy(update={"as_if_max": "same"})
    with pytest.raises(ConfigError, match=r"--as-if-max twice, but .* --as-if-max same; give another folder"):
        open_state(tmp_path, SERVER, other, "now")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"apiVersion": "edl.shadow/v9"}', "no JSON"])
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(ConfigError, match=r"state.json is not the state of a shadow run of this version"):
        open_state(tmp_path, SERVER, SETTINGS, "now")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out .*file: .*give a folder that can be written"):
        open_state(tmp_path / "file", SERVER, SETTINGS, "now")
    with pytest.raises(ConfigError, match=r"report.html cannot be written: .*; free space, or give another folder"):
        write_files(tmp_path / "missing", {"report.html": "x"})


def test_the_json_is_read_again_as_the_same_report() -> None:
    made = report(intervals=[minute(0)])
    assert Report.model_validate_json(made.model_dump_json(by_alias=True)) == made
    assert '"apiVersion":"edl.shadow/v1"' in made.model_dump_json(by_alias=True)


def test_the_page_needs_nothing_from_elsewhere_and_fits_a_phone() -> None:
    page = page_of(report(intervals=[minute(number) for number in range(10)]))
    tags = Tags(page)
    assert tags.open == []
    assert tags.addresses == []
    assert "@import" not in page
    assert "url(" not in page
    assert "<script" not in page
    assert "width=device-width" in page
    assert "<svg viewBox" in page


def test_an_empty_report_makes_a_page_too() -> None:
    page = page_of(report())
    assert "No interval was observed yet" in page
    assert "There is no disagreement" in page


def test_what_a_cluster_calls_its_objects_is_escaped() -> None:
    wrong = Disagreement(
        at="2026-01-05T10:00:00Z",
        pod="ads/<script>alert(1)</script>",
        node="n1",
        scheduler="0/1 nodes & more",
        edl="it fits on this node",
        predicates=[Predicate.VOLUMES],
        since_change_s=0.5,
    )
    made = report()
    made.agreement.disagreements = [wrong] * (MOST_ROWS + 5)
    made.agreement.left_off = 7
    made.unknown.kinds = {"evil/v1 <b>": 3}
    page = page_of(made)
    assert "<script" not in page
    assert "evil/v1 &lt;b&gt;: 3" in page
    assert page.count("&lt;script&gt;") == MOST_ROWS
    assert "12 more; report.json has those that were kept" in page


def test_a_chart_of_a_week_has_few_points_and_keeps_its_ends() -> None:
    chart = chart_of([minute(number) for number in range(7 * 24 * 60)], "cpu")
    (line,) = re.findall(r'class="line capacity" d="([^"]*)"', chart)
    assert line.count("L") <= 2 * MOST_POINTS + 2
    assert chart.count("1970-01-01T00:00:00Z") == 1
    assert chart.count("1970-01-07T23:59:00Z") == 1


def test_a_pause_breaks_the_lines() -> None:
    chart = chart_of([minute(0), minute(1), minute(60), minute(61)], "cpu")
    assert chart.count('class="line with-edl"') == 2


def test_a_resource_that_no_node_has_has_no_chart() -> None:
    assert chart_of([minute(0)], "nvidia.com/gpu") == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (75, "75 s"), (600, "10 min"), (4800, "1 h 20 min"), (183_600, "2 d 3 h")],
)
def test_a_length_of_time_has_two_units_at_most(seconds: float, text: str) -> None:
    assert length_of(seconds) == text


def test_a_report_in_one_line() -> None:
    assert summary_of(report()).startswith("0 s observed; no answer of kube-scheduler yet; 0 trainers")
