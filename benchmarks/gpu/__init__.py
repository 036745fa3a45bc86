"""Trainers of several processes whose model is in shards, or that share a GPU: `python -m benchmarks.gpu`."""
