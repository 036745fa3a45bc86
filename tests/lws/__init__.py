"""Tests of LeaderWorkerSets that edl resizes, beside their real controller (`make lws-test`)."""
