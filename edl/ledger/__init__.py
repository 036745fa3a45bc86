"""The ledger of one training job: which trainer leases which records, what is done, and what must be leased again.

A pure state machine. It imports the standard library and `edl.errors` only. Start reading in `ledger.py`; `events.py`
lists everything that the journal stores.
"""
