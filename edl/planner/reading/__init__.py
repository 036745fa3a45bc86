"""Reads pods into arrays for a plan; for the next plan, only changed ones are read again."""
