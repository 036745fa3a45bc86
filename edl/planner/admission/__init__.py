"""Who runs: `serving` finds what serving needs, `trial` tries a set of jobs beside it, `admit` decides which sets."""
