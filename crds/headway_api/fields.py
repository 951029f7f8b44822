# SPDX-License-Identifier: Apache-2.0
"""Field types shared by the kinds: sized integers, names, quantities, times, list types.

The patterns must mean the same to Go's RE2 (the API server) and to Rust's regex (pydantic).
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, GetJsonSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema


class Keywords:
    """Adds keywords to a type's JSON schema, whatever else constrains it."""

    def __init__(self, **keywords: Any) -> None:
        self._keywords = {name.replace("_", "-"): value for name, value in keywords.items()}

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(core_schema), **self._keywords}


def list_map(*keys: str) -> Keywords:
    """Server-side apply merges the list by these keys of its items (JSON names)."""
    return Keywords(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=list(keys))


LIST_SET = Keywords(x_kubernetes_list_type="set")

INT32_MAX = 2**31 - 1
LONGEST_PROMPT_TOKENS = 2**20
LONGEST_REQUEST_TOKENS = 2**21
WORKLOADS_MAX = 8
OBJECTIVES_MAX = 8

Int32 = Annotated[int, Keywords(format="int32")]
Int64 = Annotated[int, Keywords(format="int64")]


def _whole_seconds_utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[
    AwareDatetime, PlainSerializer(_whole_seconds_utc, return_type=str, when_used="json")
]

DnsLabel = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
DnsSubdomain = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$")]
# No segment starts with a dot: the name becomes a path below a mount.
ModelName = Annotated[
    str,
    Field(
        max_length=253,
        pattern=r"^[A-Za-z0-9_][-.A-Za-z0-9_]*(/[A-Za-z0-9_][-.A-Za-z0-9_]*)*$",
    ),
]
ImageReference = Annotated[str, Field(max_length=512)]
LabelKey = Annotated[str, Field(max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]
QualifiedName = Annotated[str, Field(max_length=253)]

Quantity = (
    Annotated[int, Field(ge=0)]
    | Annotated[
        str,
        Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"),
    ]
)
CountOrPercent = (
    Annotated[int, Field(ge=0)]
    | Annotated[str, Field(max_length=4, pattern=r"^(100|[1-9]?[0-9])%$")]
)

Switch = Literal["Enabled", "Disabled"]
Permission = Literal["Deny", "Allow"]
TruthValue = Literal["True", "False", "Unknown"]
