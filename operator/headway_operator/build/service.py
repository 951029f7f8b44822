# SPDX-License-Identifier: Apache-2.0
"""The Service clients call. The metrics port is not part of it: pods are scraped one by one."""

from headway_api.names import HTTP_PORT
from headway_operator.build.metadata import metadata, sealed, selector
from headway_operator.pool import Pool
from headway_operator.resources import SERVICES, Manifest


def build_service(pool: Pool, image: str) -> Manifest:
    return sealed(
        SERVICES,
        {
            "metadata": metadata(pool, pool.name, image),
            "spec": {
                "type": "ClusterIP",
                "selector": selector(pool),
                "ports": [
                    {"name": "http", "protocol": "TCP", "port": HTTP_PORT, "targetPort": "http"}
                ],
            },
        },
    )


def service_url(pool: Pool) -> str:
    return f"http://{pool.name}.{pool.namespace}.svc:{HTTP_PORT}"
