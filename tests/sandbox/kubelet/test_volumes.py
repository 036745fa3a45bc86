from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from edl.errors import ConfigError
from edl.sandbox.kubelet.environment import MissingReferenceError
from edl.sandbox.kubelet.volumes import VolumeSources, prepare_volumes

OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    ("Secret", "key"): {"data": {name: base64.b64encode(name.encode()).decode() for name in ("trainer", "other")}},
    ("PersistentVolumeClaim", "shared"): {"spec": {"volumeName": "hand"}},
    ("PersistentVolumeClaim", "remote"): {"spec": {"volumeName": "far"}},
    ("PersistentVolume", "hand"): {"metadata": {"name": "hand"}, "spec": {"hostPath": {"path": "/usr/share"}}},
    ("PersistentVolume", "far"): {"metadata": {"name": "far"}, "spec": {"nfs": {"server": "s", "path": "/"}}},
    ("ConfigMap", "settings"): {"data": {"A": "1"}, "binaryData": {"B": base64.b64encode(b"\xff").decode()}},
}


async def prepared(folder: Path, *volumes: dict[str, Any]) -> dict[str, Path]:
    async def token(_: object, source: dict[str, Any]) -> str:
        return f"token for {source.get('audience', 'api')}"

    named = [{"name": f"v{place}", **volume} for place, volume in enumerate(volumes)]
    pod = {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"volumes": named, "containers": [{"name": "c"}]}}
    sources = VolumeSources(lambda kind, name: OBJECTS.get((kind, name)), token, {}, folder / "claims")
    return await prepare_volumes(pod, folder / "pod", sources)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_secret_has_the_chosen_keys_as_files(tmp_path: Path) -> None:
    chosen = {"secretName": "key", "items": [{"key": "trainer", "path": "deep/token"}]}
    found = await prepared(tmp_path, {"secret": {"secretName": "key"}}, {"secret": chosen})
    assert contents(found["v0"]) == {"trainer": b"trainer", "other": b"other"}
    assert contents(found["v1"]) == {"deep/token": b"trainer"}


async def test_a_projected_volume_joins_its_sources(tmp_path: Path) -> None:
    sources = [
        {"configMap": {"name": "settings"}},
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    found = await prepared(tmp_path, {"projected": {"sources": sources}})
    assert contents(found["v0"]) == {"A": b"1", "B": b"\xff", "token": b"token for api", "namespace": b"ns"}


async def test_a_claim_outlives_the_pod_and_a_host_path_is_itself(tmp_path: Path) -> None:
    volumes: tuple[dict[str, Any], ...] = (
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"hostPath": {"path": "/usr"}},
        {"emptyDir": {}},
    )
    found = await prepared(tmp_path, *volumes)
    assert found["v0"] == tmp_path / "claims" / "ns" / "data"
    assert found["v1"] == Path("/usr")
    assert found["v2"].is_relative_to(tmp_path / "pod")


async def test_a_claim_of_a_volume_made_by_hand_is_the_path_of_that_volume(tmp_path: Path) -> None:
    found = await prepared(tmp_path, {"persistentVolumeClaim": {"claimName": "shared"}})
    assert found["v0"] == Path("/usr/share")
    with pytest.raises(ConfigError, match="knows hostPath and local volumes only"):
        await prepared(tmp_path, {"persistentVolumeClaim": {"claimName": "remote"}})


async def test_a_missing_secret_is_waited_for_and_an_optional_one_is_empty(tmp_path: Path) -> None:
    with pytest.raises(MissingReferenceError, match='secret "gone" not found'):
        await prepared(tmp_path, {"secret": {"secretName": "gone"}})
    found = await prepared(tmp_path, {"secret": {"secretName": "gone", "optional": True}})
    assert contents(found["v0"]) == {}


async def test_a_path_outside_of_its_volume_is_refused(tmp_path: Path) -> None:
    leaving = {"secretName": "key", "items": [{"key": "trainer", "path": "../../escaped"}]}
    with pytest.raises(ConfigError, match="leaves the volume"):
        await prepared(tmp_path, {"secret": leaving})
    assert "escaped" not in str(contents(tmp_path))


async def test_an_unknown_kind_of_volume_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="v0: the process kubelet knows no nfs volumes"):
        await prepared(tmp_path, {"nfs": {}})
