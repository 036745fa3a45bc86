"""The control loop: observe the cluster, make a plan, write the changes, record what happened, repeat.

Written against the interfaces in `ports.py`, so it also runs without a cluster. May import the pure packages
(`model`, `planner`, `lifecycle`) and no library that does input or output. Start with `loop.py`.
"""
