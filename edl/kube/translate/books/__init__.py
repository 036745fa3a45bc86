"""Translated pods and nodes, kept from one snapshot to the next: only what changed is translated again."""
