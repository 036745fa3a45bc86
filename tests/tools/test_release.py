"""What is not fit to be released is refused, with the file and the rule."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from tools import release


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    """An archive with one folder, as every sdist has."""
    (tmp_path / "edl-1").mkdir()
    archive = tmp_path / "edl-1.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(tmp_path / "edl-1", "edl-1")
    return archive


@pytest.mark.parametrize(("content", "refused"), [(b"the same", False), (b"another", True)])
def test_a_wheel_that_the_sdist_does_not_build_is_refused(
    sdist: Path, content: bytes, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(source: Path, folder: Path, kind: str) -> Path:
        assert (source.name, kind) == ("edl-1", "wheel")
        folder.mkdir()
        wheel = folder / "edl-1.whl"
        wheel.write_bytes(content)
        return wheel

    wheel = tmp_path / "edl-1.whl"
    wheel.write_bytes(b"the same")
    monkeypatch.setattr(release, "build", built)
    if refused:
        with pytest.raises(release.ReleaseError, match=r"edl-1\.tar\.gz builds another wheel"):
            release.check_same_wheel(sdist, wheel)
    else:
        release.check_same_wheel(sdist, wheel)


def test_a_folder_with_two_wheels_is_refused(tmp_path: Path) -> None:
    for name in ("a.whl", "b.whl"):
        (tmp_path / name).touch()
    with pytest.raises(release.ReleaseError, match=r"2 files match \*\.whl"):
        release.only(tmp_path, "*.whl")


def test_a_failed_command_is_named_with_its_output() -> None:
    with pytest.raises(release.ReleaseError, match=r"(?s)exited with 3:.*why"):
        release.run(sys.executable, "-c", "print('why'); raise SystemExit(3)")


def test_a_command_does_not_see_this_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "checkout")
    assert release.run(sys.executable, "-c", "import os; print(os.environ.get('PYTHONPATH'))") == "None\n"


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A program that writes down how it is called; the image that it runs holds edl 1.2.3."""
    program = tmp_path / "docker"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/calls\n'
        'case "$1" in run) echo "edl 1.2.3" ;; save) echo image > "$3" ;; esac\n'
    )
    program.chmod(0o755)
    return program


def test_the_image_is_built_run_and_saved(docker: Path, tmp_path: Path) -> None:
    archive = release.image(str(docker), tmp_path, "1.2.3")
    assert archive.read_text() == "image\n"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[:2] == [
        f"build --tag edl/edl-controller:1.2.3 {release.ROOT}",
        "run --rm edl/edl-controller:1.2.3 --version",
    ]


def test_an_image_with_another_edl_is_refused_and_not_saved(docker: Path, tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match=r"edl-controller:1\.2\.4: edl prints version 1\.2\.3"):
        release.image(str(docker), tmp_path, "1.2.4")
    assert not list(tmp_path.glob("*.tar"))
