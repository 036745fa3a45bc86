"""Decides which jobs run: `admit` chooses the sets of jobs to try, `trial` tries one beside what serving needs."""
