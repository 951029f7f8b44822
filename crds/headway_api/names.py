# SPDX-License-Identifier: Apache-2.0
"""Every name that two parts of Headway must agree on: group, plurals, labels, managers, ports.

Constants only. A name that a single part uses belongs to that part.
"""

GROUP = "serving.headway.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

INFERENCE_POOL = "InferencePool"
WORKLOAD_CLASS = "WorkloadClass"
TENANT_POLICY = "TenantPolicy"
INFERENCEPOOLS = "inferencepools"
WORKLOADCLASSES = "workloadclasses"
TENANTPOLICIES = "tenantpolicies"

POOL_LABEL = f"{GROUP}/pool"
TENANT_LABEL = f"{GROUP}/tenant"
RUNTIME_REVISION_ANNOTATION = f"{GROUP}/runtime-revision"
RESTARTED_AT_ANNOTATION = f"{GROUP}/restarted-at"
RECONCILE_ANNOTATION = f"{GROUP}/reconcile"
TRACK_ANNOTATION = f"{GROUP}/track"

OPERATOR_MANAGER = "headway-operator"
TUNER_MANAGER = "headway-autotune"

HTTP_PORT = 8000
METRICS_PORT = 9000

RUNTIME_FILE_NAME = "runtime.json"
RUNTIME_MOUNT = "/etc/headway/runtime"
MODEL_MOUNT = "/models"
