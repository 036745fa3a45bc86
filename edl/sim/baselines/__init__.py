"""Policies of research, one file each, beside which edl is measured.

Each says how many trainers every job should have; production code then places them, admits, and frees capacity for
serving, so that policies differ in their shares and in nothing else. Start with `base.py`.
"""
