"""The key that makes the tokens: it is created once, in a file that only its owner can read or in a Secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError, TemporaryError
from edl.kube.master_key import MasterKey, make_token
from edl.model.names import KEY_SECRET, JobKey
from tests.kube.writer_on_fake_api import WritableApi
from tests.worlds.fake_api import connected


def key_in(path: Path) -> MasterKey:
    """A key in a file; it sends no request, so it needs no session."""
    no_session: Any = None
    return MasterKey(path, session=no_session, namespace="x")


def test_a_key_file_is_created_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "edl" / "key"
    key_in(path)
    made = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(made) >= 32
    key_in(path)
    assert path.read_bytes() == made


def test_a_key_that_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short")
    with pytest.raises(ConfigError, match="at least 16"):
        key_in(tmp_path / "key")


async def test_if_the_key_file_cannot_be_created_one_replica_creates_a_secret() -> None:
    path = Path("/proc/edl/key")
    api = WritableApi()
    async with connected(api) as session:
        leader, other = (MasterKey(path, session, "paddlecloud") for _ in range(2))
        key = await leader.get()
        assert await leader.get() == key
        assert api.objects["/api/v1/namespaces/paddlecloud/secrets"][("paddlecloud", KEY_SECRET)]["data"]["key"]
        with pytest.raises(TemporaryError, match="does not contain"):
            await other.get()


def test_tokens_differ_by_role_job_and_uid() -> None:
    made = {
        make_token(b"k" * 32, JobKey(namespace, name), uid, role)
        for namespace in ("a", "b")
        for name in ("a", "b")
        for uid in ("1", "2")
        for role in ("trainer", "controller")
    }
    assert len(made) == 16
