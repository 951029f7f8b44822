# SPDX-License-Identifier: Apache-2.0
"""Which replicas run with the newest HOT values, as told by their own metrics.

Only ready replicas count. A replica says the revision in force, or that it refused the newest one
and because of which field; a replica of which Prometheus knows nothing is simply pending.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headway_api.metric_names import KV_TOKENS, RUNTIME_CONFIG_INFO, RUNTIME_CONFIG_REJECTED
from headway_operator.samples import Sample


@dataclass(frozen=True, slots=True)
class Rejection:
    pod: str
    field: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """`unreachable` says why nothing is known of the replicas; the counts are then void."""

    ready: int
    applied: int = 0
    rejections: tuple[Rejection, ...] = ()
    unreachable: str | None = None

    @property
    def pending(self) -> int:
        return self.ready - self.applied


def replicas_query(namespace: str, pool: str) -> str:
    """One query for everything the operator reads of a pool's replicas."""
    metrics = "|".join((RUNTIME_CONFIG_INFO, RUNTIME_CONFIG_REJECTED, KV_TOKENS))
    return f'{{__name__=~"{metrics}",namespace="{namespace}",pool="{pool}"}}'


def acknowledge(
    revision: str,
    ready_pods: Collection[str],
    samples: Iterable[Sample],
    unreachable: str | None = None,
) -> Acknowledgement:
    applied: set[str] = set()
    rejections: set[tuple[str, str]] = set()
    for sample in samples:
        pod = sample.labels.get("pod", "")
        if pod not in ready_pods or sample.labels.get("revision") != revision or not sample.value:
            continue
        name = sample.labels.get("__name__")
        if name == RUNTIME_CONFIG_INFO:
            applied.add(pod)
        elif name == RUNTIME_CONFIG_REJECTED:
            rejections.add((pod, sample.labels.get("field", "")))
    return Acknowledgement(
        ready=len(ready_pods),
        applied=len(applied),
        rejections=tuple(Rejection(pod, field) for pod, field in sorted(rejections)),
        unreachable=unreachable,
    )


def smallest_capacity(ready_pods: Collection[str], samples: Iterable[Sample]) -> int | None:
    """KV tokens of the smallest ready replica; None while none has reported."""
    return min(
        (
            int(sample.value)
            for sample in samples
            if sample.labels.get("__name__") == KV_TOKENS
            and sample.labels.get("state") == "capacity"
            and sample.labels.get("pod") in ready_pods
            and sample.value > 0
        ),
        default=None,
    )
