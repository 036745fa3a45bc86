"""Tables of the API server as text: the columns of the CRD, laid out as kubectl lays them out.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from edl.printable import printable

AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""The media type that asks the API server for a table."""

_GAP = 3
_NARROWEST = 6


class JobTable:
    """Prints the tables of one list or of one watch; the columns are those of the first table."""

    def __init__(self, *, wide: bool, with_namespace: bool) -> None:
        """Choose the columns.

        Args:
            wide: also the columns of lower priority.
            with_namespace: the namespace as the first column.
        """
        self._wide, self._with_namespace = wide, with_namespace
        self._shown: list[int] = []
        self._names: list[str] = []
        self._widths: list[int] = []

    def lines(self, table: dict[str, Any]) -> Iterator[str]:
        """Yield the lines of a table, with the head if it is the first; a table without rows has no lines."""
        columns = table.get("columnDefinitions") or []
        if columns and not self._names:
            self._shown = [k for k, column in enumerate(columns) if self._wide or not column.get("priority")]
            self._names = [str(columns[k].get("name", "")).upper() for k in self._shown]
            if self._with_namespace:
                self._names.insert(0, "NAMESPACE")
        rows = [self._cells(row) for row in table.get("rows") or []]
        if rows and not self._widths:
            widths = (max(len(cell) for cell in column) for column in zip(self._names, *rows, strict=True))
            self._widths = [max(_NARROWEST, width + _GAP) for width in widths]
            yield self._line(self._names)
        yield from map(self._line, rows)

    def _cells(self, row: dict[str, Any]) -> list[str]:
        cells = row.get("cells") or []
        shown = [_text(cells[k]) for k in self._shown if k < len(cells)]
        if self._with_namespace:
            shown.insert(0, _text(((row.get("object") or {}).get("metadata") or {}).get("namespace")))
        return shown

    def _line(self, cells: Sequence[str]) -> str:
        """Format a row; a column that is too narrow for it is widened from now on."""
        self._widths = [max(width, len(cell) + _GAP) for cell, width in zip(cells, self._widths, strict=True)]
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        return "".join(padded).rstrip()


def _text(cell: object) -> str:
    """Format a cell as kubectl does: only its first line, without control characters for the terminal."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    return printable(str(cell).partition("\n")[0])
