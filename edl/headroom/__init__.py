"""How much capacity to keep free for serving, learned from what serving did; it decides nothing about trainers."""
