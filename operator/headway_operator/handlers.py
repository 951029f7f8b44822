# SPDX-License-Identifier: Apache-2.0
"""kopf's side: it watches and calls; every handler hands a key on and does nothing else.

Only `on.event` is used. Every other kind of handler makes kopf write annotations or finalizers to
users' objects, and a finalizer makes pools undeletable while the operator is away.
"""

from typing import Any

import kopf

from headway_api.names import GROUP, INFERENCEPOOLS, POOL_LABEL, VERSION, WORKLOADCLASSES
from headway_operator.build.metadata import MANAGED_BY, MANAGED_BY_LABEL
from headway_operator.controller import Unhealthy
from headway_operator.resources import CHILDREN, PODS

REGISTRY = kopf.get_default_registry()
"""What the decorators below fill."""

REQUEST_SECONDS = 30.0
CONNECT_SECONDS = 10.0
ERROR_BACKOFFS = (1, 2, 4, 8, 15) + (30,) * 9
"""About five minutes without the API; then the process ends, and a restart costs nothing."""
RECONNECT_SECONDS = 1.0
PAGE_SIZE = 500
EXIT_SECONDS = 25.0


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    configure(settings)
    await memo.controller.start()


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    await memo.controller.stop()


@kopf.on.login()
async def login(**keywords: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**keywords) or kopf.login_with_service_account(**keywords)


@kopf.on.event(GROUP, VERSION, INFERENCEPOOLS)
async def pool_seen(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    memo.controller.pool_seen(type, dict(body))


@kopf.on.event(GROUP, VERSION, WORKLOADCLASSES)
async def class_seen(name: str, memo: kopf.Memo, **_: Any) -> None:
    memo.controller.class_seen(name)


@kopf.on.event("v1", "configmaps")
@kopf.on.event("v1", "serviceaccounts")
@kopf.on.event("v1", "services")
@kopf.on.event("apps", "v1", "deployments")
@kopf.on.event("networking.k8s.io", "v1", "networkpolicies")
async def child_seen(body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    memo.controller.child_seen(dict(body))


@kopf.on.event("v1", "pods")
async def pod_seen(labels: kopf.Labels, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    memo.controller.pod_seen(labels.get(POOL_LABEL), dict(body))


@kopf.on.probe(id="controller", errors=kopf.ErrorsMode.PERMANENT)
async def probe(memo: kopf.Memo, **_: Any) -> str:
    try:
        memo.controller.check()
    except Unhealthy as error:
        raise kopf.PermanentError(str(error)) from error
    return "ok"


def configure(settings: kopf.OperatorSettings) -> None:
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.networking.connect_timeout = CONNECT_SECONDS
    settings.networking.error_backoffs = ERROR_BACKOFFS
    settings.watching.reconnect_backoff = RECONNECT_SECONDS
    settings.watching.chunk_size = PAGE_SIZE
    for resource in (*CHILDREN, PODS):
        key = (resource.group, resource.version, resource.plural)
        settings.watching.label_selectors[key] = f"{MANAGED_BY_LABEL}={MANAGED_BY}"
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = EXIT_SECONDS
    settings.persistence.finalizer = f"{GROUP}/operator"
