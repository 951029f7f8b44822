# SPDX-License-Identifier: Apache-2.0
"""What the operator is told at start, by flags and never by custom resources."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`providers` maps a metrics provider's name to the URL of its Prometheus."""

    server_image: str
    providers: Mapping[str, str]
    release_namespace: str
    watch_namespaces: tuple[str, ...] = ()
    workers: int = 8
    resync_seconds: float = 600.0
    targets_port: int = 8082
