"""Capacity that trainers lend to serving: where it is cleared, and the check that a plan counts it right."""
