# SPDX-License-Identifier: Apache-2.0
"""`spec.model`: which weights a pool serves and where they come from."""

from typing import ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import (
    DnsSubdomain,
    ImageReference,
    ModelName,
    Permission,
    QualifiedName,
)

ModelSource = Literal["HuggingFace", "PersistentVolumeClaim", "Image"]


class ClaimSource(ApiModel):
    """Weights on an existing claim of this namespace."""

    claim_name: DnsSubdomain
    """Name of the PersistentVolumeClaim."""
    path: str = Field(default="/", max_length=1024)
    """Directory inside the claim that model.name is relative to."""


class ImageSource(ApiModel):
    """Weights as an OCI image volume."""

    reference: ImageReference = Field(min_length=1)
    """Image reference; a digest keeps rollouts reproducible."""


class HubTokenRef(ApiModel):
    """Key of a Secret that holds a hub token."""

    name: DnsSubdomain
    """Name of the Secret."""
    key: QualifiedName = "token"
    """Key inside the Secret."""


class Model(ApiModel):
    """Model to serve."""

    rules: ClassVar = (
        Rule(
            "self.source == 'PersistentVolumeClaim'"
            " ? has(self.persistentVolumeClaim) : !has(self.persistentVolumeClaim)",
            "persistentVolumeClaim must be set exactly when source is PersistentVolumeClaim",
        ),
        Rule(
            "self.source == 'Image' ? has(self.image) : !has(self.image)",
            "image must be set exactly when source is Image",
        ),
    )

    name: ModelName
    """RESTART. Hugging Face repository id, or the path inside the claim or image."""
    revision: str = Field(default="main", max_length=128)
    """RESTART. Git revision on the hub; pin a commit for reproducible rollouts."""
    source: ModelSource = "HuggingFace"
    """RESTART. Where the weights come from; persistentVolumeClaim and image belong to the source
    of the same name."""
    persistent_volume_claim: ClaimSource | None = None
    """RESTART. Weights on an existing claim of this namespace."""
    image: ImageSource | None = None
    """RESTART. Weights as an OCI image volume."""
    token_secret_ref: HubTokenRef | None = None
    """RESTART. Hub token in a Secret of this namespace."""
    remote_code_policy: Permission = "Deny"
    """RESTART. Whether code from the model repository may run. A TenantPolicy may refuse Allow."""
    dtype: Literal["Auto", "Float16", "BFloat16", "Float32"] = "Auto"
    """RESTART. Type of the weights; Auto is the checkpoint's."""
    quantization: Literal["None", "Int8", "Fp8"] = "None"
    """RESTART. Weights are quantised when loaded, or are so in the checkpoint already."""
    served_name: str | None = Field(default=None, max_length=253)
    """RESTART. Model name clients send. Unset: metadata.name."""
