"""Random mixes of TrainingJobs, `batch/v1` Jobs and Volcano Jobs under waves of serving, from one seed each.

- `random_mix`: what a mix consists of, and the mix of a seed.
- `in_virtual_time`: a mix under the real controller and planner on a simulated cluster.
- `rules`: what must hold of the counts, wherever a mix is played.

The same mixes on a real control plane with Volcano: `tests/volcano`.
"""
