"""Writes what libraries the controller's image has, as CycloneDX 1.6: `make sbom`.

It is made from the lock file alone (requirements/controller.txt), so the same lock gives the same bytes. What the
base image has is not in it: a scanner of your registry lists that.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edl import __version__

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "controller.txt"
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))? ?\\?$")
_EDL = "edl (pyproject.toml)"


@dataclass(frozen=True, slots=True)
class Pin:
    """One library of a lock file.

    Attributes:
        marker: where it is installed, as PEP 508 writes it; empty if everywhere.
        hashes: of all its files, each `sha256:...`.
        needed_by: names of the libraries that need it, or `edl (pyproject.toml)`.
    """

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def read_lock(text: str) -> tuple[Pin, ...]:
    """The libraries of a lock file that `make lock` wrote, in its order.

    Raises:
        ValueError: a line is none that it writes.
    """
    pins: list[Pin] = []
    for line in text.splitlines():
        if (start := _PIN.match(line)) is not None:
            pins.append(Pin(start["name"], start["version"], start["marker"] or "", (), ()))
            continue
        word = line.strip().removesuffix("\\").strip()
        last = pins[-1] if pins else None
        if last is None or not line.startswith(" "):
            raise ValueError(f"not a line of a lock file: {line!r}")
        if word.startswith("--hash="):
            pins[-1] = _with(last, hashes=(*last.hashes, word.removeprefix("--hash=")))
        elif (needed := word.removeprefix("#").strip().removeprefix("via").strip()) and needed != word:
            pins[-1] = _with(last, needed_by=(*last.needed_by, needed))
    return tuple(pins)


def _with(pin: Pin, *, hashes: tuple[str, ...] | None = None, needed_by: tuple[str, ...] | None = None) -> Pin:
    return Pin(
        pin.name,
        pin.version,
        pin.marker,
        pin.hashes if hashes is None else hashes,
        pin.needed_by if needed_by is None else needed_by,
    )


def bill_of_materials(pins: tuple[Pin, ...]) -> dict[str, Any]:
    """The document: edl, its libraries, and which needs which."""
    edl = f"pkg:pypi/edl@{__version__}"
    refs: dict[str, list[str]] = {_EDL: [edl]}
    needs: dict[str, list[str]] = {edl: []}
    for pin in pins:
        refs.setdefault(pin.name, []).append(pin.purl)
        needs[pin.purl] = []
    for pin in pins:
        for name in pin.needed_by:
            for ref in refs[name]:
                needs[ref].append(pin.purl)
    content = "\n".join((edl, *(pin.purl for pin in pins)))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": edl,
                "name": "edl",
                "version": __version__,
                "purl": edl,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [_component(pin) for pin in pins],
        "dependencies": [{"ref": ref, "dependsOn": sorted(wanted)} for ref, wanted in sorted(needs.items())],
    }


def _component(pin: Pin) -> dict[str, Any]:
    properties = [{"name": "edl:installed-if", "value": pin.marker}] if pin.marker else []
    return {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        **({"properties": properties} if properties else {}),
    }


def main() -> int:
    """Write the document; print how many libraries it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "dist" / "edl-controller.cdx.json", help="the file")
    given = parser.parse_args()
    pins = read_lock(LOCK.read_text())
    given.into.parent.mkdir(parents=True, exist_ok=True)
    given.into.write_text(json.dumps(bill_of_materials(pins), indent=2) + "\n")
    print(f"{given.into}: {len(pins)} libraries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
