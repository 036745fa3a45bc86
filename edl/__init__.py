"""Elastic deep learning on Kubernetes: trains in the capacity your services leave."""

__version__ = "0.1.0"
