# SPDX-License-Identifier: Apache-2.0
"""Kubernetes label selectors, with every list and string bounded."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import LabelKey, LabelValue


class LabelRequirement(ApiModel):
    """One requirement on a label."""

    key: LabelKey = Field(min_length=1)
    """Label key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label relates to values."""
    values: Annotated[list[LabelValue], Field(max_length=16)] | None = None
    """Values for In and NotIn."""


class LabelSelector(ApiModel):
    """Objects whose labels meet every requirement."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=16)] | None = None
    """Labels that must have exactly these values."""
    match_expressions: Annotated[list[LabelRequirement], Field(max_length=16)] | None = None
    """Requirements that must all hold."""


class NonEmptyLabelSelector(LabelSelector):
    """Objects whose labels meet every requirement; at least one is needed."""

    rules: ClassVar = (
        Rule(
            "(has(self.matchLabels) && size(self.matchLabels) > 0)"
            " || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
            "namespaceSelector must not be empty",
        ),
    )
