"""Who runs: `admit` decides which sets of jobs are tried, `trial` tries one beside what serving needs."""
