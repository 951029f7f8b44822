# SPDX-License-Identifier: Apache-2.0
"""Pools and facts for the tests of pure decisions."""

from typing import Any

from headway_api.workloadclass import WorkloadClassSpec
from headway_operator.acknowledgement import Acknowledgement
from headway_operator.decide import Decision, decide
from headway_operator.facts import Facts
from headway_operator.options import Options
from headway_operator.pool import Pool, read_pool
from headway_operator.replicas import Replicas
from headway_operator.resources import Manifest

UID = "11111111-2222-3333-4444-555555555555"
OPTIONS = Options(
    server_image="registry.example/headway/server:1.2.3",
    providers={},
    release_namespace="headway-system",
)
CLASSES = {
    "chat": WorkloadClassSpec.model_validate(
        {
            "priority": 100,
            "batching": {"waitingServedRatioPercent": 0},
            "bounds": {"waitingServedRatioPercent": {"min": 0, "max": 200}},
            "slo": {"objectives": [{"metric": "TTFT", "thresholdMilliseconds": 1000}]},
        }
    ),
    "batch": WorkloadClassSpec.model_validate(
        {"priority": -100, "batching": {"maxBatchTotalTokens": 50_000}}
    ),
}


def manifest(spec: Manifest | None = None, status: Manifest | None = None) -> Manifest:
    return {
        "metadata": {"namespace": "team-a", "name": "chat", "uid": UID, "generation": 3},
        "spec": {"model": {"name": "acme/tiny"}, **(spec or {})},
        "status": status or {},
    }


def pool(spec: Manifest | None = None, status: Manifest | None = None) -> Pool:
    return read_pool(manifest(spec, status))


def decision(
    of: Pool, *, classes: dict[str, WorkloadClassSpec] | None = None, live: Manifest | None = None
) -> Decision:
    known = CLASSES if classes is None else classes
    return decide(of, OPTIONS, classes=known, live_configmap=live)


def facts(of: Pool | None = None, **known: Any) -> Facts:
    """A pool of one replica that serves and has acknowledged, but for what is said otherwise."""
    subject = of or pool()
    settled: dict[str, Any] = {
        "decision": decision(subject),
        "replicas": Replicas(exists=True, total=1, updated=1, ready=1, available=1),
        "acknowledgement": Acknowledgement(ready=1, applied=1),
    }
    return Facts(pool=subject, **(settled | known))
