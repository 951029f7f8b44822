# SPDX-License-Identifier: Apache-2.0
"""Who reaches a pool and who watches it: authentication, network, metrics, gateways."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import DnsLabel, DnsSubdomain, Int32
from headway_api.selectors import LabelSelector


class SecretRef(ApiModel):
    """A Secret of this namespace."""

    name: DnsSubdomain
    """Name of the Secret."""


class AllowedClient(ApiModel):
    """Peers a NetworkPolicy lets in; both selectors together narrow the choice."""

    namespace_selector: LabelSelector | None = None
    """Namespaces the peers are in. Unset: the pool's own."""
    pod_selector: LabelSelector | None = None
    """Pods that are let in. Unset: all of the namespaces."""


class Access(ApiModel):
    """Who may call the pool."""

    rules: ClassVar = (
        Rule(
            "!has(self.authentication) || self.authentication != 'APIKey'"
            " || has(self.apiKeysSecretRef)",
            "apiKeysSecretRef is required when authentication is APIKey",
        ),
    )

    authentication: Literal["None", "APIKey"] = "None"
    """HOT. APIKey needs apiKeysSecretRef."""
    api_keys_secret_ref: SecretRef | None = None
    """HOT. Secret of this namespace with one data key per client id, whose value is the API key."""
    network_policy: Literal["Inherit", "Namespace", "Open"] = "Inherit"
    """Inherit: the TenantPolicy's, else Namespace. Namespace: the same namespace and
    allowedClients. Open: no NetworkPolicy."""
    allowed_clients: Annotated[list[AllowedClient], Field(max_length=16)] | None = None
    """Further peers that are let in."""


class Metrics(ApiModel):
    """How the pool is observed."""

    provider_name: DnsLabel = "default"
    """Metrics provider of the operator's configuration; URLs never come from this object."""
    monitor: Literal["Auto", "ServiceMonitor", "PodMonitor", "None"] = "Auto"
    """Scrape object to create; Auto picks one whose CRD is installed."""
    alerts: Literal["Auto", "None"] = "Auto"
    """Auto creates a PrometheusRule where its CRD is installed."""


class EndpointPicker(ApiModel):
    """Service of an endpoint picker."""

    service_name: DnsLabel
    """Name of the Service."""
    port: Int32 = Field(default=9002, ge=1, le=65_535)
    """Port of the Service."""


class Gateway(ApiModel):
    """Interoperation with the Gateway API Inference Extension."""

    rules: ClassVar = (
        Rule(
            "!has(self.export) || self.export != 'InferencePool' || has(self.endpointPicker)",
            "endpointPicker is required when export is InferencePool",
        ),
    )

    export: Literal["None", "InferencePool"] = "None"
    """InferencePool creates an inferencepools.inference.networking.k8s.io for these pods, named
    <pool>-gie."""
    endpoint_picker: EndpointPicker | None = None
    """Service of the endpoint picker that gateways ask."""
