"""Faults between a controller and a real API server, and what they must lead to."""
