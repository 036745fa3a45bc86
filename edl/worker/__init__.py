"""What a trainer imports: it reads the trainer's share of the data, while other trainers come and go.

    from edl.worker import connect
    with connect() as job:
        for record in job.records():
            train(record)

It needs the standard library only; data sets in files also need the extra `lines` or `parquet`. `edl.worker_torch`
does the same for a PyTorch loop. Start reading in `job.py`.
"""

from edl.worker.job import Job, connect
from edl.worker.records import Remote

__all__ = ["Job", "Remote", "connect"]
