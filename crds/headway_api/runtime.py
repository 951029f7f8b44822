# SPDX-License-Identifier: Apache-2.0
"""The runtime file: the HOT values as the operator hands them to every server of a pool.

The revision is a hash of the values, so whoever reads the file can tell that it is whole, and equal
values never look like a change. Must stay free of I/O: the operator writes the text into a
ConfigMap, the server reads it from a mount.
"""

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from headway_api.api_model import ApiModel
from headway_api.batching import WorkloadLimits
from headway_api.engine import BatchFormation
from headway_api.fields import INT32_MAX, WORKLOADS_MAX, DnsLabel, Int32
from headway_api.objectives import Objectives

REVISION_DIGITS = 16


class RuntimeFileError(ValueError):
    """A file that must not be applied; `field` is a JSON path, empty for the whole file."""

    def __init__(self, field: str, message: str, revision: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message
        self.revision = revision


class _RuntimeModel(ApiModel):
    model_config = ConfigDict(extra="forbid")


class RuntimeBatching(_RuntimeModel):
    """None stands for the value the server profiled at start."""

    max_batch_total_tokens: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    max_batch_prefill_tokens: Int32 | None = Field(default=None, ge=1, le=INT32_MAX)
    waiting_served_ratio_percent: Int32 = Field(ge=0, le=1000)
    max_waiting_tokens: Int32 = Field(ge=0, le=10_000)


class RuntimeWorkload(_RuntimeModel):
    name: DnsLabel
    class_name: DnsLabel
    priority: Int32 = Field(ge=-1000, le=1000)
    weight: Int32 = Field(ge=1, le=1000)
    batching: RuntimeBatching
    limits: WorkloadLimits | None = None
    objectives: Objectives = Field(default_factory=list)


class RuntimeScheduling(BatchFormation):
    """How batches are formed: what the spec says, nothing else."""

    model_config = ConfigDict(extra="forbid")


def _unique_names(workloads: list[RuntimeWorkload]) -> list[RuntimeWorkload]:
    names = [workload.name for workload in workloads]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"workload names must be unique, repeated: {', '.join(repeated)}")
    return workloads


class RuntimeValues(_RuntimeModel):
    """`scheduling` None stands for the defaults, so that a file without it fits older servers."""

    max_concurrent_requests: Int32 = Field(ge=1, le=65_536)
    scheduling: RuntimeScheduling | None = None
    workloads: Annotated[
        list[RuntimeWorkload],
        Field(min_length=1, max_length=WORKLOADS_MAX),
        AfterValidator(_unique_names),
    ]


class RuntimeFile(_RuntimeModel):
    revision: str
    stable: RuntimeValues
    canary: RuntimeValues | None = None

    @classmethod
    def of(cls, stable: RuntimeValues, canary: RuntimeValues | None = None) -> Self:
        return cls(revision=revision_of(stable, canary), stable=stable, canary=canary)


def canonical_json(model: ApiModel) -> str:
    """The one text of these values: keys sorted, no spaces, nulls dropped."""
    return _compact(_plain(model))


def revision_of(stable: RuntimeValues, canary: RuntimeValues | None = None) -> str:
    """First hex digits of the SHA-256 of the canonical JSON of both sections."""
    sections = {"stable": _plain(stable)}
    if canary is not None:
        sections["canary"] = _plain(canary)
    return hashlib.sha256(_compact(sections).encode()).hexdigest()[:REVISION_DIGITS]


def parse_runtime_file(text: str | bytes) -> RuntimeFile:
    """Raises RuntimeFileError, also when the revision is not that of the values."""
    try:
        file = RuntimeFile.model_validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RuntimeFileError(
            _json_path(first["loc"]), first["msg"], _claimed_revision(text)
        ) from error
    expected = revision_of(file.stable, file.canary)
    if file.revision != expected:
        raise RuntimeFileError(
            "revision",
            f"the values hash to {expected}, the file says {file.revision}",
            file.revision,
        )
    return file


def _plain(model: ApiModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _compact(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _json_path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _claimed_revision(text: str | bytes) -> str:
    try:
        content = json.loads(text)
    except ValueError:
        return ""
    revision = content.get("revision") if isinstance(content, dict) else None
    return revision if isinstance(revision, str) else ""
