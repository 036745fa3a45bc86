"""The data master: a ledger behind an HTTP API, with a journal on disk. Each job has one such process.

Start reading in `master.py`, which connects the ledger and the journal. `http_api.py` serves it, and `datasets.py`
finds the records of a data set.
"""
