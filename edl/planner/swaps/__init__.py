"""Trainers of many sizes packed by swaps: `search` decides, `state` holds the arrays and every exact fit."""
