"""Plan in, text out: the sentence of each job, the report of `edl explain`, the table of `edl plan`.

Pure. May import `edl.planner` and `edl.model`. Start with `sentences.py`.
"""
