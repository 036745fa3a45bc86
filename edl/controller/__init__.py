"""The loop: observe, plan, check, act, record. Written against `ports.py`, so that it runs without a cluster too.

May import everything that is pure, and no library that talks to anything. Start with `loop.py`.
"""
