"""What joins, leaves and kills cost trainers of several processes, and whether they change a bit.

    python -m benchmarks.gpu --device cuda --processes 1 --millions 124 1000
    python -m benchmarks.gpu --device cpu --processes 2 --millions 0.1

On one card NCCL refuses two processes of one group, so there `--processes 1` puts the two trainers beside each other
on it: their shards go from one to the other through the memory of the host. With more cards, give each trainer some.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.gpu.run import ShardRun
from benchmarks.gpu.trainer import Settings


def main() -> None:
    """Measure some models, and print a line for each."""
    parser = argparse.ArgumentParser(description="Trainers of several processes that join, leave and are killed.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--processes", type=int, default=2, help="of each trainer")
    parser.add_argument("--millions", type=float, nargs="+", default=[0.1])
    parser.add_argument("--kind", choices=["float32", "float64", "bfloat16"], default="float32")
    parser.add_argument("--whole", action="store_true", help="each process has the whole model")
    options = parser.parse_args()
    for millions in options.millions:
        begin_s = time.monotonic()
        settings = Settings("", millions, options.device, not options.whole, options.kind)
        with tempfile.TemporaryDirectory() as folder:
            with ShardRun(Path(folder) / "changes", settings, options.processes) as job:
                found = job.measure()
            with ShardRun(Path(folder) / "fixed", settings._replace(stop_at=found.steps), options.processes) as job:
                is_equal = job.fixed(2) == found.digest
        print(
            f"{millions:g} million parameters of {options.kind}, {options.processes} processes on {options.device}:"
            f" step {found.step_s:.2f} s; pause of a join {found.joins_s[0]:.2f} and {found.joins_s[1]:.2f} s"
            f" ({found.bytes / 1e9 / max(1e-9, min(found.joins_s)):.2f} GB/s), of a leave {found.leave_s:.2f} s,"
            f" of a kill {found.kill_s:.2f} s; {found.steps} steps, {found.worlds} worlds, the weights are"
            f" {'equal to the last bit' if is_equal else 'DIFFERENT'}; {time.monotonic() - begin_s:.0f} s in all",
            flush=True,
        )


if __name__ == "__main__":
    main()
