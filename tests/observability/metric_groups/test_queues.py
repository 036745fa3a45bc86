"""What the metrics show of queues."""

from __future__ import annotations

from edl.model.queues import Queue, QueueStatus
from edl.observability.metrics import Metrics

BLUE = Queue("blue", (("cpu", 3000), ("memory", 2**30)))
GREEN = Queue("green", (("cpu", 4000),))
STATES = ("nominal", "share", "used", "borrowed")


def values(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.render().decode().splitlines() if line.startswith("edl_queue")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_each_queue_shows_what_it_owns_may_use_uses_and_borrows() -> None:
    metrics = Metrics()
    blue = QueueStatus(
        used=(("cpu", 4500), ("memory", 2**29)),
        borrowed=(("cpu", 1500),),
        share=(("cpu", 5000),),
        running=2,
        pending=1,
    )
    metrics.queued((BLUE, GREEN), {"blue": blue, "green": QueueStatus(used=(("cpu", 0),))})
    found = values(metrics)
    shown = {state: found[f'edl_queue_resources{{queue="blue",resource="cpu",state="{state}"}}'] for state in STATES}
    assert shown == {"nominal": 3.0, "share": 5.0, "used": 4.5, "borrowed": 1.5}
    assert found['edl_queue_resources{queue="blue",resource="memory",state="borrowed"}'] == 0
    assert found['edl_queue_resources{queue="blue",resource="memory",state="used"}'] == 2**29
    assert found['edl_queue_resources{queue="green",resource="cpu",state="borrowed"}'] == 0
    jobs = {state: found[f'edl_queue_jobs{{queue="blue",state="{state}"}}'] for state in ("running", "pending")}
    assert jobs == {"running": 2, "pending": 1}


def test_a_deleted_queue_is_no_longer_shown() -> None:
    metrics = Metrics()
    metrics.queued((BLUE,), {"blue": QueueStatus(running=1)})
    metrics.queued((), {})
    assert values(metrics) == {}
