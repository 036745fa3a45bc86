from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edl.sandbox.kubelet.images import Image, default_images, find_image, table, unknown_image, write_programs

IMAGES = (Image("*edl/edl-controller", "master"), Image("*nginx", "serving"))


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("nginx", "serving"),
        ("nginx:1.27", "serving"),
        ("docker.io/library/nginx", "serving"),
        ("registry:5000/nginx@sha256:0", "serving"),
        ("edl/edl-controller:0.1.0", "master"),
        ("registry.example.com:5000/team/edl/edl-controller:2", "master"),
    ],
)
def test_a_name_is_found_whatever_its_registry_and_tag(name: str, about: str) -> None:
    image = find_image(IMAGES, name)
    assert image is not None
    assert image.about == about


def test_an_unknown_image_is_refused_with_the_names_of_the_table() -> None:
    assert find_image(IMAGES, "nginx-not") is None
    assert "*edl/edl-controller, *nginx" in unknown_image(IMAGES, "nginx-not")


def test_the_table_has_a_row_for_each_image() -> None:
    rows = table(default_images()).splitlines()
    assert [row.split()[0] for row in rows] == [image.pattern for image in default_images()]
    assert any("fit_flights" in row for row in rows)


def test_programs_run_this_python(tmp_path: Path) -> None:
    write_programs(tmp_path)
    command = [str(tmp_path / "python"), "-c", "import sys; print(sys.prefix)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == sys.prefix
