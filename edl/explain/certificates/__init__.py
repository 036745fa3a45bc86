"""A plan's certificate in rationals, for people who do not trust the planner; start reading at `document.certify`.

`rules` states what any plan may do, `prices` finds good prices by a linear program, and `exact` computes without
rounding the bound that they give. Nothing here changes a plan. `tools/verify_certificate.py` checks the result.
"""
