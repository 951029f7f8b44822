# SPDX-License-Identifier: Apache-2.0
"""Where a server finds its weights: the value of `--model`, and the volume that holds them.

A path made of the pool's words must not leave the mount, whatever it is made of.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from headway_api.model_source import Model
from headway_api.names import MODEL_MOUNT
from headway_operator.pool import InvalidSpec
from headway_operator.resources import Manifest, Manifests

CACHE_MOUNT = "/cache"


@dataclass(frozen=True, slots=True)
class ModelVolume:
    """`location` is a hub id or a path in the container; `volumes` is empty for the hub."""

    location: str
    volumes: Manifests
    mounts: Manifests
    env: Manifests


def model_volume(model: Model) -> ModelVolume:
    if model.persistent_volume_claim:
        claim = model.persistent_volume_claim
        return _mounted(
            location=_below_mount(claim.path, model.name),
            source={"persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}},
        )
    if model.image:
        return _mounted(
            location=_below_mount(model.name),
            source={
                "image": {"reference": model.image.reference, "pullPolicy": "IfNotPresent"},
            },
        )
    return ModelVolume(location=model.name, volumes=[], mounts=[], env=_hub_env(model))


def _mounted(location: str, source: Manifest) -> ModelVolume:
    return ModelVolume(
        location=location,
        volumes=[{"name": "model", **source}],
        mounts=[{"name": "model", "mountPath": MODEL_MOUNT, "readOnly": True}],
        env=[{"name": "HF_HUB_OFFLINE", "value": "1"}],
    )


def _below_mount(*parts: str) -> str:
    path = PurePosixPath(MODEL_MOUNT, *(part.lstrip("/") for part in parts))
    if ".." in path.parts or "\0" in str(path):
        raise InvalidSpec(f"model: the path {'/'.join(parts)!r} must not leave the volume")
    return str(path)


def _hub_env(model: Model) -> Manifests:
    cache: Manifest = {"name": "HF_HOME", "value": f"{CACHE_MOUNT}/huggingface"}
    if model.token_secret_ref is None:
        return [cache]
    token = {"name": model.token_secret_ref.name, "key": model.token_secret_ref.key}
    return [cache, {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": token}}]
