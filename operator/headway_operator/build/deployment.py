# SPDX-License-Identifier: Apache-2.0
"""The Deployment of a pool's servers.

The pod template is a function of the RESTART fields alone. HOT values, the number of replicas and
the operator's version never appear in it: anything that does rolls every GPU pod when it changes.
"""

from headway_api.names import HTTP_PORT, METRICS_PORT, RUNTIME_FILE_NAME, RUNTIME_MOUNT
from headway_operator.build.metadata import labels, metadata, runtime_name, sealed, selector
from headway_operator.build.model_volume import CACHE_MOUNT, ModelVolume, model_volume
from headway_operator.pool import Pool
from headway_operator.quantities import parse_quantity
from headway_operator.resources import DEPLOYMENTS, Manifest, Manifests

CONTAINER = "server"
NONROOT_ID = 65532
TMP_SIZE = "1Gi"
EXIT_MARGIN_SECONDS = 15
PROBE_TIMEOUT_SECONDS = 5
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TOPOLOGY_KEYS = {"Node": "kubernetes.io/hostname", "Zone": "topology.kubernetes.io/zone"}


def build_deployment(pool: Pool, image: str) -> Manifest:
    rollout = pool.spec.rollout
    return sealed(
        DEPLOYMENTS,
        {
            "metadata": metadata(pool, pool.name, image),
            "spec": {
                "replicas": pool.spec.replicas,
                "selector": {"matchLabels": selector(pool)},
                "progressDeadlineSeconds": rollout.progress_deadline_seconds,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {
                        "maxSurge": rollout.max_surge,
                        "maxUnavailable": rollout.max_unavailable,
                    },
                },
                "template": pod_template(pool, image),
            },
        },
    )


def pod_template(pool: Pool, image: str) -> Manifest:
    placement = pool.spec.scheduling
    queue = {QUEUE_LABEL: placement.queue_name} if placement.queue_name else {}
    return {
        "metadata": {"labels": labels(pool, image) | queue},
        "spec": _pod(pool, image, model_volume(pool.spec.model)) | _placement(pool),
    }


def _pod(pool: Pool, image: str, model: ModelVolume) -> Manifest:
    drain = pool.spec.rollout.drain_timeout_seconds
    shared = pool.spec.resources.shared_memory
    return {
        "serviceAccountName": pool.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": drain + EXIT_MARGIN_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NONROOT_ID,
            "runAsGroup": NONROOT_ID,
            "fsGroup": NONROOT_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(pool, image, model)],
        "volumes": [
            {"name": "runtime", "configMap": {"name": runtime_name(pool)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": TMP_SIZE}},
            {"name": "cache", "emptyDir": {"sizeLimit": str(pool.spec.cache.size)}},
            {
                "name": "shm",
                "emptyDir": {"medium": "Memory", "sizeLimit": str(shared)},
            },
            *model.volumes,
        ],
    }


def _container(pool: Pool, image: str, model: ModelVolume) -> Manifest:
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["headway-server"],
        "args": server_args(pool, model.location),
        "env": [{"name": "HOME", "value": CACHE_MOUNT}, *_threads(pool), *model.env],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "resources": _resources(pool),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": _probe("/health", period=2, failures=150),
        "readinessProbe": _probe("/ready", period=2, failures=2),
        "livenessProbe": _probe("/health", period=10, failures=6),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(model),
    }


def server_args(pool: Pool, model_location: str) -> list[str]:
    spec = pool.spec
    flags: dict[str, str | int | None] = {
        "--model": model_location,
        "--served-name": spec.model.served_name or pool.name,
        "--revision": spec.model.revision if spec.model.source == "HuggingFace" else None,
        "--device": "cuda" if spec.resources.gpu.count else "cpu",
        "--dtype": spec.model.dtype.lower(),
        "--quantization": _unless("None", spec.model.quantization),
        "--max-input-tokens": spec.engine.max_input_tokens,
        "--max-total-tokens": spec.engine.max_total_tokens,
        "--kv-cache-capacity-tokens": spec.engine.kv_cache_capacity_tokens,
        "--kv-cache-dtype": _unless("Auto", spec.engine.kv_cache_dtype),
        "--prefix-caching": _unless("Enabled", spec.engine.prefix_caching),
        "--gpu-memory-utilization-percent": spec.engine.gpu_memory_utilization_percent,
        "--runtime-file": f"{RUNTIME_MOUNT}/{RUNTIME_FILE_NAME}",
        "--port": HTTP_PORT,
        "--metrics-port": METRICS_PORT,
        "--drain-timeout-seconds": spec.rollout.drain_timeout_seconds,
    }
    words = [
        word for flag, value in flags.items() if value is not None for word in (flag, str(value))
    ]
    return ["serve", *words, *(spec.engine.extra_args or [])]


def _unless(default: str, value: str) -> str | None:
    """A flag that an older server lacks must not appear in its pods before it is asked for."""
    return None if value == default else value.lower()


def _resources(pool: Pool) -> Manifest:
    resources = pool.spec.resources
    amounts = {"cpu": str(resources.cpu), "memory": str(resources.memory)}
    if resources.gpu.count:
        amounts[resources.gpu.resource_name] = str(resources.gpu.count)
    return {"requests": amounts, "limits": amounts}


def _threads(pool: Pool) -> Manifests:
    """On the CPU: with more compute threads than the quota has CPUs the container is throttled."""
    resources = pool.spec.resources
    cpus = parse_quantity(resources.cpu)
    if resources.gpu.count or cpus is None:
        return []
    return [{"name": "OMP_NUM_THREADS", "value": str(max(1, int(cpus)))}]


def _probe(path: str, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
        "failureThreshold": failures,
    }


def _mounts(model: ModelVolume) -> Manifests:
    return [
        {"name": "runtime", "mountPath": RUNTIME_MOUNT, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "cache", "mountPath": CACHE_MOUNT},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        *model.mounts,
    ]


def _placement(pool: Pool) -> Manifest:
    placement = pool.spec.scheduling
    tolerations = [
        toleration.model_dump(mode="json", by_alias=True, exclude_none=True)
        for toleration in placement.tolerations or []
    ]
    fields = {
        "nodeSelector": placement.node_selector,
        "tolerations": tolerations,
        "priorityClassName": placement.priority_class_name,
        "runtimeClassName": placement.runtime_class_name,
        "topologySpreadConstraints": _spread(pool),
    }
    return {name: value for name, value in fields.items() if value}


def _spread(pool: Pool) -> Manifests:
    key = TOPOLOGY_KEYS.get(pool.spec.scheduling.spread)
    if key is None:
        return []
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(pool)},
        }
    ]
