# SPDX-License-Identifier: Apache-2.0
"""What a pool should look like, given what was observed. Pure: the same pool, the same decision."""

from collections.abc import Mapping
from dataclasses import dataclass

from headway_api.names import RUNTIME_FILE_NAME
from headway_api.runtime import RuntimeFile, RuntimeFileError, parse_runtime_file
from headway_api.workloadclass import WorkloadClassSpec
from headway_operator.build import Child, build_children
from headway_operator.effective import (
    EffectiveWorkload,
    MissingClass,
    effective_workloads,
    runtime_file,
)
from headway_operator.options import Options
from headway_operator.pool import Pool
from headway_operator.resources import Manifest


@dataclass(frozen=True, slots=True)
class Decision:
    """`held` says why the HOT values cannot be decided; the last written ones then stay, and a
    pool for which none were ever written gets no children yet (`runtime` is None)."""

    image: str
    children: tuple[Child, ...]
    runtime: RuntimeFile | None
    workloads: tuple[EffectiveWorkload, ...]
    held: str | None = None


def decide(
    pool: Pool,
    options: Options,
    *,
    classes: Mapping[str, WorkloadClassSpec],
    live_configmap: Manifest | None,
) -> Decision:
    """Raises InvalidSpec."""
    image = server_image(pool, options.server_image)
    recommended = {
        workload.name: workload.recommended
        for workload in pool.status.workloads or []
        if workload.recommended
    }
    held: str | None = None
    workloads: list[EffectiveWorkload] = []
    try:
        workloads = effective_workloads(pool.spec, classes, recommended, _capacity(pool))
        runtime: RuntimeFile | None = runtime_file(pool.spec, workloads)
    except MissingClass as error:
        held, runtime = str(error), _last_written(live_configmap)
    children = (
        build_children(
            pool, image=image, runtime=runtime, release_namespace=options.release_namespace
        )
        if runtime
        else []
    )
    return Decision(image, tuple(children), runtime, tuple(workloads), held)


def server_image(pool: Pool, default: str) -> str:
    """The pool's own image, else the one it has run with since it was created, else the default.

    A new operator with a new default image so rolls nothing, unless the pool asks for it.
    """
    if pool.spec.engine.image:
        return pool.spec.engine.image
    recorded = pool.status.engine and pool.status.engine.image
    if recorded and pool.spec.rollout.operator_upgrade_policy == "Ignore":
        return recorded
    return default


def _capacity(pool: Pool) -> int | None:
    """KV tokens every replica has at least, as far as is known."""
    known = [pool.spec.engine.kv_cache_capacity_tokens, pool.capacity]
    return min((tokens for tokens in known if tokens), default=None)


def _last_written(live_configmap: Manifest | None) -> RuntimeFile | None:
    text = ((live_configmap or {}).get("data") or {}).get(RUNTIME_FILE_NAME)
    try:
        return parse_runtime_file(text) if text else None
    except RuntimeFileError:
        return None
