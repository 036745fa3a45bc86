"""What a trainer imports to read its share of the data while other trainers come and go.

    from edl.worker import connect
    with connect() as job:
        for record in job.records():
            train(record)

Needs the standard library only; data sets in files need the extras `lines` or `parquet`. `edl.worker_torch` has the
same for a PyTorch loop. Start reading in `job.py`.
"""

from edl.worker.job import Job, Remote, connect

__all__ = ["Job", "Remote", "connect"]
