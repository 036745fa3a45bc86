"""The ways in which a call to the API server goes wrong, by name."""

from __future__ import annotations

from edl.sandbox.apiserver.faults import Effect, Fail, Lose, Loss, Moment, Stale

EFFECTS: dict[str, Effect] = {
    "404": Fail(404),
    "409": Fail(409),
    "422": Fail(422),
    "429": Fail(429, retry_after_s=1),
    "500": Fail(500),
    "504": Fail(504),
    "504 after commit": Fail(504, moment=Moment.AFTER),
    "reset": Lose(Loss.RESET, Moment.BEFORE),
    "reset after commit": Lose(Loss.RESET, Moment.AFTER),
    "stale read": Stale(10),
}
"""504 is the API server's own timeout; a call that is never answered: tests/e2e/faults/test_server.py."""
