"""Nodes that an autoscaler adds and removes: which a plan asks for, and which it empties.

Start reading in `asking`. Nothing here runs unless the operator gives `--expect-nodes`.
"""
