"""Elastic deep learning on Kubernetes: trains in the room your services leave."""

__version__ = "0.1.0"
