"""The reference page of the commands."""

from __future__ import annotations

from pathlib import Path

from edl.install.command_reference import COMMANDS_PAGE, commands_page
from edl.install.reference import write_all

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert (ROOT / COMMANDS_PAGE).read_text() == commands_page(), "run `make generate`"


def test_generate_writes_the_page(tmp_path: Path) -> None:
    write_all(tmp_path)
    assert (tmp_path / COMMANDS_PAGE).read_text() == commands_page()


def test_a_row_holds_all_that_is_declared() -> None:
    rows = commands_page().splitlines()
    for row in (
        "| `--token-file FILE` | `EDL_TOKEN_FILE` | required | File with the token that trainers must send. |",
        "| `--interval-s SECONDS` | `EDL_INTERVAL_S` | `5` | Longest time between two plans. A number from 0.1 up to"
        " 3600. |",
        "| `-o`, `--output table\\|json` | `EDL_OUTPUT`, `EDL_O` | `table` | Output format. |",
        "| `--once` | `EDL_ONCE` |  | Make one plan, carry it out, then exit. |",
        "| `JOURNAL` | `EDL_JOURNAL` | required | Folder of a master's journal, or a copy of it; it is only"
        " read, so the master may be running. |",
    ):
        assert row in rows
