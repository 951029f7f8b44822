# SPDX-License-Identifier: Apache-2.0
"""What `headway-server serve` was told, as values: the border between the flags and the server."""

from dataclasses import dataclass
from pathlib import Path

from headway_server.runner.simulated import StepTime


class StartError(Exception):
    """The server cannot start; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """None: taken from the model, or measured. `simulated` is the step time of that runner, if it
    was asked for."""

    model: str
    served_name: str
    revision: str
    device: str
    dtype: str
    quantization: str
    kv_cache_dtype: str
    prefix_caching: bool
    simulated: StepTime | None
    max_input_tokens: int | None
    max_total_tokens: int | None
    kv_cache_capacity_tokens: int | None
    gpu_memory_utilization_percent: int
    runtime_file: Path | None
    host: str
    port: int
    metrics_port: int
    drain_timeout_seconds: float
    stall_timeout_seconds: float
    tgi_metrics: bool
