"""Paths of a container as folders of this machine.

A process of an ordinary user cannot have a file system of its own, so the paths of its mounts are rewritten where the
kubelet sees them: in the command, the arguments, and the values of variables. A path that a program has built in
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


class PathMap:
    """Replaces folders of a container by folders of this machine.

    Args:
        folders: absolute path in the container -> absolute path here.
    """

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = {path.rstrip("/"): here for path, here in folders.items() if path.rstrip("/")}
        longest_first = sorted(self._folders, key=len, reverse=True)
        inner = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<![\w./-])({inner})(?![\w.-])") if inner else None

    def text(self, text: str) -> str:
        """Replace each mapped path in a text, also within a longer one such as `--journal=/data/x`."""
        return self._pattern.sub(lambda match: self._folders[match[1]], text) if self._pattern else text

    def texts(self, texts: list[str]) -> list[str]:
        """Replace the mapped paths in every text of a list."""
        return [self.text(text) for text in texts]
