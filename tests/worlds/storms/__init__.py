"""Hours of virtual time in which the world goes wrong at random, under the real controller, and who judges them.

The API server is the sandbox's, in this process; cache, translation, writer, planner and controller are the real
ones.

- `local_server`: the API server, its clock, and a client without a socket.
- `cluster_life`: kubelets, scheduler, garbage collector, and the controller of `batch/v1` Jobs.
- `troubles`: what goes wrong: webhooks, quotas, images, crashes, nodes, owners.
- `random_hour`: the hour of a seed: nodes, jobs, serving and troubles.
- `batch_owner`: the latter.
- `play`: plays an hour, and looks at the cluster every few seconds.
- `storm_rules`: what nobody may do too often, hold for nothing, or leave without a word.
- `truth`: compares each statement of a status with the cluster. It imports nothing of edl.
- `world_view`: the cluster for those who judge. Nor does it.
"""
