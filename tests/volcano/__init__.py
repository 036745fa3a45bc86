"""Tests beside the real Volcano: its scheduler, its controllers and its admission (`make volcano-test`)."""
