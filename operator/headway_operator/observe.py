# SPDX-License-Identifier: Apache-2.0
"""Everything a decision about one pool needs, read live: children, pods, classes; then replicas.

Nothing is taken from memory or from an event: a watch may have gaps, and what is read here is the
only truth a reconcile acts on.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from headway_api.names import POOL_LABEL
from headway_api.workloadclass import WorkloadClassSpec
from headway_operator.acknowledgement import replicas_query
from headway_operator.build.metadata import selector
from headway_operator.kube import KubeApi
from headway_operator.pool import Pool
from headway_operator.prometheus import MetricsUnavailable, Prometheus
from headway_operator.resources import (
    CHILDREN,
    PODS,
    WORKLOADCLASSES,
    Manifest,
    Manifests,
    Resource,
)
from headway_operator.samples import Sample

logger = logging.getLogger(__name__)

Children = Mapping[tuple[Resource, str], Manifest]


@dataclass(frozen=True, slots=True)
class Observation:
    children: Children
    pods: Manifests
    classes: Mapping[str, WorkloadClassSpec]


@dataclass(frozen=True, slots=True)
class Replies:
    """What the replicas say through Prometheus; `unreachable` tells why they could not be heard."""

    samples: tuple[Sample, ...] = ()
    unreachable: str | None = None


async def observe(api: KubeApi, pool: Pool) -> Observation:
    labels = {POOL_LABEL: pool.name}
    *per_kind, pods, classes = await asyncio.gather(
        *(api.list(resource, pool.namespace, labels) for resource in CHILDREN),
        api.list(PODS, pool.namespace, selector(pool)),
        api.list(WORKLOADCLASSES),
    )
    children = {
        (resource, manifest["metadata"]["name"]): manifest
        for resource, manifests in zip(CHILDREN, per_kind, strict=True)
        for manifest in manifests
    }
    return Observation(children=children, pods=pods, classes=_read_classes(classes))


async def ask_replicas(providers: Mapping[str, Prometheus], pool: Pool) -> Replies:
    """Only ever for the report: no change to a child waits for a metrics provider."""
    name = pool.spec.metrics.provider_name
    if name not in providers:
        known = ", ".join(sorted(providers)) or "none"
        return Replies(unreachable=f"There is no metrics provider {name!r}; there are: {known}.")
    try:
        samples = await providers[name].query(replicas_query(pool.namespace, pool.name))
    except MetricsUnavailable as error:
        return Replies(unreachable=str(error))
    return Replies(samples=tuple(samples))


def _read_classes(manifests: Manifests) -> dict[str, WorkloadClassSpec]:
    classes = {}
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        try:
            classes[name] = WorkloadClassSpec.model_validate(manifest.get("spec") or {})
        except ValidationError as error:
            logger.warning("WorkloadClass %s is taken as absent: %s", name, error)
    return classes
