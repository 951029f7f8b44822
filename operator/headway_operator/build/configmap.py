# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap that hands a pool's HOT values to its servers as the runtime file."""

from headway_api.names import RUNTIME_FILE_NAME
from headway_api.runtime import RuntimeFile, canonical_json
from headway_operator.build.metadata import metadata, runtime_name, sealed
from headway_operator.pool import Pool
from headway_operator.resources import CONFIGMAPS, Manifest


def build_configmap(pool: Pool, image: str, runtime: RuntimeFile) -> Manifest:
    return sealed(
        CONFIGMAPS,
        {
            "metadata": metadata(pool, runtime_name(pool), image),
            "data": {RUNTIME_FILE_NAME: canonical_json(runtime)},
        },
    )
