"""What a decision came to and why: its context, the reason of each job, what is scarce, and prices.

Nothing here changes a plan. May import every other module of the planner but `decide` and `policies`. Start with
`reasons.py`.
"""
