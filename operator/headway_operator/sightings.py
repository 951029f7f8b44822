# SPDX-License-Identifier: Apache-2.0
"""What the watch has shown of each pool: enough to tell a change worth a pass from an echo.

It is a hint and never the truth. Most events of a pool are echoes of the operator's own status
writes. What the tuner recommends counts as a change, though it is status too. Comparing with a
listing shows a watch that has gone deaf.
"""

from dataclasses import dataclass
from typing import Any

from headway_operator.pool import PoolKey
from headway_operator.resources import Manifest, Manifests

DEFAULT_CLASS = "chat"


@dataclass(frozen=True, slots=True)
class Sighting:
    uid: str
    generation: int
    deleting: bool
    recommended: tuple[tuple[str, str], ...]
    classes: frozenset[str]


class Sightings:
    def __init__(self) -> None:
        self._seen: dict[PoolKey, Sighting] = {}
        self._missed: dict[PoolKey, float] = {}

    def note(self, body: Manifest) -> bool:
        """Remember a watched pool; True when something a pass depends on is new."""
        key, sighting = key_of(body), _sighting(body)
        changed = self._seen.get(key) != sighting
        self._seen[key] = sighting
        self._missed.pop(key, None)
        return changed

    def forget(self, key: PoolKey) -> None:
        self._seen.pop(key, None)
        self._missed.pop(key, None)

    def using(self, class_name: str) -> list[PoolKey]:
        return [key for key, sighting in self._seen.items() if class_name in sighting.classes]

    def compare(self, listed: Manifests, now: float) -> None:
        """Note which pools a listing at time `now` shows otherwise than the watch did."""
        truth = {key_of(manifest): _sighting(manifest) for manifest in listed}
        for key in self._seen.keys() - truth.keys():
            self.forget(key)
        for key, sighting in truth.items():
            if self._seen.get(key) != sighting:
                self._missed.setdefault(key, now)

    def deaf_for(self, now: float) -> float:
        """Seconds since the watch first failed to show something that a listing did."""
        return max((now - since for since in self._missed.values()), default=0.0)


def key_of(manifest: Manifest) -> PoolKey:
    return PoolKey(manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def _sighting(manifest: Manifest) -> Sighting:
    meta = manifest["metadata"]
    spec: dict[str, Any] = manifest.get("spec") or {}
    status: dict[str, Any] = manifest.get("status") or {}
    return Sighting(
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        deleting=bool(meta.get("deletionTimestamp")),
        recommended=tuple(
            (item["name"], repr(sorted(item["recommended"].items())))
            for item in status.get("workloads") or []
            if item.get("recommended")
        ),
        classes=frozenset(
            workload.get("className", DEFAULT_CLASS) for workload in spec.get("workloads") or []
        ),
    )
