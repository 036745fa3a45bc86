"""Trainers that train in step without a framework: their model is a list."""
