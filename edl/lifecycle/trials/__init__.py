"""Pods that fail, that a node rejects or that do not start: when others are tried, and what their job keeps."""
