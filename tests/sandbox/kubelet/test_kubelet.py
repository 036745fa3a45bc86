"""The process kubelet in a sandbox: what a pod may expect, with the embedded API server and scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.control_plane.kube import Kube
from tests.sandbox.pods import WAIT_S, PodBehaviour, make_pod
from tests.sandbox.sandboxes import sandbox


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    """A client of a sandbox with two nodes."""
    with sandbox(tmp_path_factory.mktemp("sandbox"), "--nodes", "2") as made:
        yield made


class TestPodsInASandbox(PodBehaviour):
    """The tests of `PodBehaviour`."""

    def test_sockets_fit_into_its_folder_of_temporary_files(self, kube: Kube) -> None:
        """As the workers of PyTorch's DataLoader need them; the path of a socket has at most 107 bytes."""
        code = (
            "import tempfile; from multiprocessing.connection import Client, Listener\n"
            "one = Listener(family='AF_UNIX'); other = Client(one.address); other.send('through'); other.close()\n"
            "folder = tempfile.gettempdir(); own = Listener(folder + '/socket', 'AF_UNIX')\n"
            "print(one.accept().recv(), folder, len(folder) < 40)"
        )
        self.run(kube, make_pod("sockets", code), "Succeeded")
        word, folder, fits = self.log(kube, "sockets").split()
        assert (word, fits) == ("through", "True")
        assert Path(folder).is_dir()
        kube.delete("pods", "sockets")
        self.wait_gone(kube, "sockets")
        kube.wait_until(lambda: not Path(folder).is_symlink(), WAIT_S, "the folder is gone")
