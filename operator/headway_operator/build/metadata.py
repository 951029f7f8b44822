# SPDX-License-Identifier: Apache-2.0
"""What all children of a pool have in common: names, labels, owner, seal.

Names depend on the pool's name alone, so that building twice can never make two of anything.
"""

import hashlib
import json
import re

from headway_api.names import API_VERSION, GROUP, INFERENCE_POOL, POOL_LABEL
from headway_operator.pool import Pool
from headway_operator.resources import Manifest, Resource

MANAGED_BY = "headway-operator"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
SEAL_ANNOTATION = f"{GROUP}/applied"
SEAL_DIGITS = 16

_IMAGE_TAG = re.compile(r":(?P<tag>[A-Za-z0-9_][-.A-Za-z0-9_]{0,61}[A-Za-z0-9_]|[A-Za-z0-9_])$")


def runtime_name(pool: Pool) -> str:
    """Name of the ConfigMap with the pool's runtime file."""
    return f"{pool.name}-runtime"


def selector(pool: Pool) -> dict[str, str]:
    """Labels that select the pool's pods; immutable in a Deployment, so never a version."""
    return {
        "app.kubernetes.io/name": "headway-server",
        "app.kubernetes.io/instance": pool.name,
        POOL_LABEL: pool.name,
    }


def labels(pool: Pool, image: str) -> dict[str, str]:
    common = selector(pool) | {
        "app.kubernetes.io/component": "server",
        "app.kubernetes.io/part-of": "headway",
        MANAGED_BY_LABEL: MANAGED_BY,
    }
    tag = _IMAGE_TAG.search(image.partition("@")[0])
    return common | {"app.kubernetes.io/version": tag["tag"]} if tag else common


def metadata(pool: Pool, name: str, image: str) -> Manifest:
    return {
        "name": name,
        "namespace": pool.namespace,
        "labels": labels(pool, image),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": INFERENCE_POOL,
                "name": pool.name,
                "uid": pool.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def sealed(resource: Resource, content: Manifest) -> Manifest:
    """The complete manifest, with a hash of itself as an annotation.

    A field that was applied before and is not wanted any more changes the hash, and so gets the
    object applied again without it.
    """
    manifest = {"apiVersion": resource.api_version, "kind": resource.kind, **content}
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    seal = hashlib.sha256(text.encode()).hexdigest()[:SEAL_DIGITS]
    meta = {**manifest["metadata"], "annotations": {SEAL_ANNOTATION: seal}}
    return {**manifest, "metadata": meta}
