# SPDX-License-Identifier: Apache-2.0
"""Everything that a scrape of this server is answered with."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector

from headway_server.metrics import (
    EngineCollector,
    RejectionCollector,
    RequestMetrics,
    TgiCollector,
    VllmCollector,
)
from headway_server.runtime_watch import Rejection
from headway_server.service import Service


def new_registry(
    service: Service,
    requests: RequestMetrics,
    rejection: Callable[[], Rejection | None],
    tgi: bool,
) -> CollectorRegistry:
    """`requests` is what `service` counts in; `tgi` adds TGI's names."""
    vllm = VllmCollector(service.served_name, lambda: service.state, lambda: _block_size(service))
    requests.listen(vllm.record)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(requests)
    registry.register(EngineCollector(service.served_name, lambda: service.state, service.clock))
    registry.register(RejectionCollector(service.served_name, rejection))
    registry.register(vllm)
    if tgi:
        names = TgiCollector(lambda: service.state)
        requests.listen(names.record)
        registry.register(names)
    return registry


def _block_size(service: Service) -> int | None:
    return service.model.runner.block_size if service.model else None
