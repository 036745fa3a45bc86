"""ResourceQuotas: which pods each of them counts, and what it leaves for jobs."""
