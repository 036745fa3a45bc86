"""Devices that pods get by claims (dynamic resource allocation), counted as resources of the nodes."""
