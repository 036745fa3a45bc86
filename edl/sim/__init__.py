"""A cluster in virtual time that runs the production controller: scenarios in, figures for each policy out.

`world.py` holds the true objects; `scheduler.py`, `kubelet.py`, `deployments.py` and `training.py` change them as
time passes; `port.py` is the `Cluster` that the controller sees. Start with `simulation.py`, which puts one run
together.
"""
