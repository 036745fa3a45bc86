"""Trainers of many sizes packed by swaps: `search` decides, `moves` compares, `state` holds every exact fit."""
