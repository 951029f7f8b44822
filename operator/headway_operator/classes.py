# SPDX-License-Identifier: Apache-2.0
"""Creates the built-in WorkloadClasses where they are absent; an existing one is the admin's.

The chart cannot do it: a release cannot hold a kind and objects of that kind on first install.
"""

import logging

from headway_api.builtin_classes import builtin_class_manifests
from headway_api.names import OPERATOR_MANAGER
from headway_operator.errors import Gone
from headway_operator.kube import KubeApi
from headway_operator.resources import WORKLOADCLASSES

logger = logging.getLogger(__name__)


async def install_builtin_classes(api: KubeApi) -> None:
    for manifest in builtin_class_manifests():
        name = manifest["metadata"]["name"]
        try:
            await api.get(WORKLOADCLASSES, name)
        except Gone:
            await api.apply(WORKLOADCLASSES, manifest, manager=OPERATOR_MANAGER)
            logger.info("WorkloadClass %s created", name)
