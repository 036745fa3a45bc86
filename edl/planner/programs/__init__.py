"""Linear and integer programs: patterns of pods per node class, column generation, fair shares and bounds.

May import `problem`, `trial` and `quota` of the planner. Start with `columns.py`.
"""
