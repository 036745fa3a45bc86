"""Explains how fast a job runs by number of trainers, and what a change of that number costs it.

`curve` collects it for policies `utility` and `goodput`, `steps` says why the next count is not chosen, and `lines`
has both as text and as JSON.
"""
