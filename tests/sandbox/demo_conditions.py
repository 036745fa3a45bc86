"""`make demo-conditions`: the demonstration as root and as an ordinary user, without a network, with 127.0.0.1 alone.

Each runs in network and mount namespaces of its own, so it needs root, util-linux and iproute2. In such a namespace
there is a loopback interface and nothing else, as on a machine whose cable was pulled after the installation. The
conditions are checked from inside before the demonstration starts.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOBODY = 65534
TEST_ADDRESS = "192.0.2.1"  # RFC 5737: belongs to nobody
CHECK = f"""
import errno, os, socket, sys
user, aliases = int(sys.argv[1]), sys.argv[2] == "True"
assert os.getuid() == os.geteuid() == user, os.getuid()
assert socket.socket().connect_ex(("{TEST_ADDRESS}", 80)) == errno.ENETUNREACH, "there is a network"
try:
    socket.socket().bind(("127.0.0.2", 0))
    assert aliases, "there are loopback aliases"
except OSError:
    assert not aliases, "there is no loopback alias"
"""


@dataclass(frozen=True, slots=True)
class Condition:
    """Where the demonstration must work.

    Attributes:
        user: its UID.
        aliases: whether the loopback interface has all of 127.0.0.0/8, as usual, or 127.0.0.1 alone.
    """

    user: int
    aliases: bool

    def __str__(self) -> str:
        who = "root" if self.user == 0 else "an ordinary user"
        return f"as {who}, without a network" + ("" if self.aliases else ", with 127.0.0.1 alone")


CONDITIONS = (Condition(0, aliases=True), Condition(NOBODY, aliases=True), Condition(NOBODY, aliases=False))


def closed_folder(path: Path) -> Path | None:
    """The highest folder on the way to a path that an ordinary user may not enter: root's home, for example."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def opened(paths: set[Path]) -> list[str]:
    """Commands that let everybody reach some paths, in this mount namespace only."""
    hidden = sorted((path, folder) for path in paths if (folder := closed_folder(path)) is not None)
    commands = []
    for number, (path, _) in enumerate(hidden):
        commands += [f'mkdir "$1/{number}"', f'mount --bind {shlex.quote(str(path))} "$1/{number}"']
    commands += [
        f"mount -t tmpfs -o mode=755 none {shlex.quote(str(one))}" for one in {folder for _, folder in hidden}
    ]
    for number, (path, _) in enumerate(hidden):
        commands += [f"mkdir -p {shlex.quote(str(path))}", f'mount --bind "$1/{number}" {shlex.quote(str(path))}']
    return commands


def script(condition: Condition) -> str:
    """What runs in the new namespaces; $1 is a folder for mounts, and the network is down at first."""
    lines = ["set -e", *opened({ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})]
    lines.append("ip link set lo up")
    if not condition.aliases:
        lines += ["ip address flush dev lo", "ip address add 127.0.0.1/32 dev lo"]
    user = f"setpriv --reuid {condition.user} --regid {condition.user} --clear-groups"
    lines.append(f'{user} {sys.executable} -c "$CHECK" {condition.user} {condition.aliases}')
    lines.append(f"exec {user} {Path(sys.executable).with_name('edl')} sandbox --demo")
    return "\n".join(lines)


def play(condition: Condition) -> bool:
    """Run the demonstration; True if it ends well and leaves nothing behind."""
    print(f"\n--- {condition}", flush=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edl-mounts-") as mounts, tempfile.TemporaryDirectory() as home:
        Path(mounts).chmod(0o755)
        os.chown(home, condition.user, condition.user)
        environment = {**os.environ, "HOME": home, "TMPDIR": home, "CHECK": CHECK, "PYTHONPATH": str(ROOT)}
        command = ["unshare", "--net", "--mount", "sh", "-c", script(condition), "sh", mounts]
        code = subprocess.run(command, cwd="/", env=environment, stdin=subprocess.DEVNULL, check=False).returncode
        left = [path.name for path in Path(home).iterdir()]
    is_good = code == 0 and not left
    verdict = "good" if is_good else f"BAD: exit code {code}, left behind: {left}"
    print(f"--- {condition}: {verdict}, {time.monotonic() - began_s:.0f} s", flush=True)
    return is_good


def main() -> int:
    """Play all of them; return 1 if one is bad."""
    if os.geteuid() != 0:
        print("demo-conditions makes namespaces and changes users; run it as root", file=sys.stderr)
        return 2
    results = [play(condition) for condition in CONDITIONS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
