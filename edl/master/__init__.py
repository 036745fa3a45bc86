"""The data master: a ledger behind an HTTP API, with a journal on disk. One process for each job.

`master.py` ties ledger and journal together, `http_api.py` serves it, `datasets.py` knows where the records are.
"""
