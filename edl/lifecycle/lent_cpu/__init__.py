"""Lent CPU: the requests of running trainers, the guard of their changes, and what lending costs a job."""
