# SPDX-License-Identifier: Apache-2.0
"""An InferencePool as it was read: identity, spec and last status.

The spec is validated again here, because a newer or a tampered CRD may let through what this
operator does not understand; what it refuses must become a condition and never a traceback.
"""

from dataclasses import dataclass

from pydantic import ValidationError

from headway_api.inferencepool import InferencePoolSpec, InferencePoolStatus
from headway_operator.resources import Manifest


class InvalidSpec(Exception):
    """The spec cannot be carried out; the text names the field and says why."""


@dataclass(frozen=True, slots=True)
class PoolKey:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pool:
    namespace: str
    name: str
    uid: str
    generation: int
    spec: InferencePoolSpec
    status: InferencePoolStatus

    @property
    def capacity(self) -> int | None:
        """KV tokens of the smallest replica as last reported."""
        return self.status.engine.kv_cache_capacity_tokens if self.status.engine else None


def read_pool(manifest: Manifest) -> Pool:
    meta = manifest["metadata"]
    try:
        spec = InferencePoolSpec.model_validate(manifest["spec"])
        status = InferencePoolStatus.model_validate(manifest.get("status") or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InvalidSpec(f"{field}: {first['msg']}") from error
    return Pool(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        spec=spec,
        status=status,
    )
