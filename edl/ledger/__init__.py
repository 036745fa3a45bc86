"""The accounts of a data set: which trainer holds which records, what is done, what has to be handed out again.

Pure state machine, standard library only; imports nothing of edl but `edl.errors`. Start with `ledger.py`; what a
journal stores stands in `events.py`.
"""
