# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from a server: our own series, the gateway protocol's, and TGI's on demand.

What concerns requests is counted when one ends; everything about the engine is read from its
snapshot at scrape time, so that a scrape never touches the engine. Label values come from the
flags and the settings, never from a request.
"""

from headway_server.metrics.engine import EngineCollector
from headway_server.metrics.rejection import RejectionCollector
from headway_server.metrics.requests import NO_WORKLOAD, RequestMetrics
from headway_server.metrics.tgi import TgiCollector
from headway_server.metrics.vllm import VllmCollector

__all__ = [
    "NO_WORKLOAD",
    "EngineCollector",
    "RejectionCollector",
    "RequestMetrics",
    "TgiCollector",
    "VllmCollector",
]
