"""Clusters in which pods have rules about each other."""
