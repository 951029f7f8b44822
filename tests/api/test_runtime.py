# SPDX-License-Identifier: Apache-2.0
"""The runtime file: one text for equal values, and no value that was not meant is ever read."""

import hashlib
import json
from typing import Any

import pytest

from headway_api.runtime import (
    RuntimeFile,
    RuntimeFileError,
    RuntimeValues,
    canonical_json,
    parse_runtime_file,
    revision_of,
)

STABLE: dict[str, Any] = {
    "maxConcurrentRequests": 128,
    "workloads": [
        {
            "name": "chat",
            "className": "chat",
            "priority": 100,
            "weight": 1,
            "batching": {
                "maxBatchTotalTokens": 65536,
                "waitingServedRatioPercent": 30,
                "maxWaitingTokens": 20,
            },
            "limits": {"maxQueueLength": 10},
            "objectives": [{"metric": "TTFT", "percentile": 95, "thresholdMilliseconds": 500}],
        },
    ],
}


def values(**changes: Any) -> RuntimeValues:
    return RuntimeValues.model_validate({**STABLE, **changes})


def text_of(document: Any) -> str:
    """A file whose revision fits whatever its sections say."""
    sections = {key: document[key] for key in ("stable", "canary") if document.get(key) is not None}
    written = json.dumps(sections, sort_keys=True, separators=(",", ":"))
    revision = hashlib.sha256(written.encode()).hexdigest()[:16]
    return json.dumps({"revision": revision, **document})


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """The stable section with one member replaced."""
    document: dict[str, Any] = json.loads(json.dumps(STABLE))
    holder: Any = document
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return {"stable": document}


def test_what_is_written_is_read_back() -> None:
    file = RuntimeFile.of(values(), canary=values(maxConcurrentRequests=64))
    assert parse_runtime_file(canonical_json(file)) == file


def test_the_revision_is_the_digest_of_the_values() -> None:
    assert parse_runtime_file(text_of({"stable": STABLE})).revision == revision_of(values())
    both = text_of({"stable": STABLE, "canary": STABLE})
    assert parse_runtime_file(both).revision == revision_of(values(), values())


def test_the_text_is_canonical() -> None:
    text = canonical_json(RuntimeFile.of(values()))
    assert " " not in text
    assert "null" not in text
    assert text.startswith('{"revision":"')
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_equal_values_have_one_revision_and_others_another() -> None:
    reordered = RuntimeValues.model_validate(dict(reversed(STABLE.items())))
    assert revision_of(reordered) == revision_of(values())
    assert revision_of(values(maxConcurrentRequests=127)) != revision_of(values())
    assert revision_of(values(), values()) != revision_of(values())


def test_an_unset_budget_means_the_profiled_one_and_is_not_written() -> None:
    document = changed(
        ["workloads", 0, "batching"], {"waitingServedRatioPercent": 0} | {"maxWaitingTokens": 20}
    )
    file = parse_runtime_file(text_of(document))
    assert file.stable.workloads[0].batching.max_batch_total_tokens is None
    assert "maxBatchTotalTokens" not in canonical_json(file)


WORKLOAD = STABLE["workloads"][0]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (changed(["workloads", 0, "batching", "maxBatchTotalTokens"], 0),
         "stable.workloads[0].batching.maxBatchTotalTokens"),
        (changed(["workloads", 0, "batching", "maxBatchTotalTokens"], "65536"),
         "stable.workloads[0].batching.maxBatchTotalTokens"),
        (changed(["workloads", 0, "batching", "waitingServedRatioPercent"], 1001),
         "stable.workloads[0].batching.waitingServedRatioPercent"),
        (changed(["workloads", 0, "batching", "maxWaitingTokens"], None),
         "stable.workloads[0].batching.maxWaitingTokens"),
        (changed(["workloads", 0, "batching", "maxBatchTokens"], 1),
         "stable.workloads[0].batching.maxBatchTokens"),
        (changed(["workloads", 0, "limits", "maxQueue"], 1), "stable.workloads[0].limits.maxQueue"),
        (changed(["workloads", 0, "objectives", 0, "metric"], "TTFB"),
         "stable.workloads[0].objectives[0].metric"),
        (changed(["workloads", 0, "name"], "Chat"), "stable.workloads[0].name"),
        (changed(["workloads"], []), "stable.workloads"),
        (changed(["workloads"], [WORKLOAD, WORKLOAD]), "stable.workloads"),
        (changed(["maxConcurrentRequests"], True), "stable.maxConcurrentRequests"),
        ({"stable": STABLE, "canary": {"workloads": []}}, "canary.maxConcurrentRequests"),
        ({}, "stable"),
        ({"stable": STABLE, "revision": "0123456789abcdef"}, "revision"),
        ({"stable": STABLE, "revision": None}, "revision"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_bad_file_names_its_field(document: dict[str, Any], field: str) -> None:
    with pytest.raises(RuntimeFileError) as refused:
        parse_runtime_file(text_of(document))
    assert refused.value.field == field
    assert field in str(refused.value)


def test_a_refusal_carries_the_revision_the_file_claims() -> None:
    text = text_of(changed(["maxConcurrentRequests"], 0))
    with pytest.raises(RuntimeFileError) as refused:
        parse_runtime_file(text)
    assert refused.value.revision == json.loads(text)["revision"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "\N{SNOWMAN}", b"\xff\xfe"])
def test_what_is_no_file_at_all_is_refused_as_a_whole(text: str | bytes) -> None:
    with pytest.raises(RuntimeFileError) as refused:
        parse_runtime_file(text)
    assert (refused.value.field, refused.value.revision) == ("", "")


def test_half_a_file_is_refused() -> None:
    text = canonical_json(RuntimeFile.of(values()))
    for end in range(len(text)):
        with pytest.raises(RuntimeFileError):
            parse_runtime_file(text[:end])


@pytest.mark.parametrize(
    ("scheduling", "field"),
    [
        ({"policy": "Fastest"}, "stable.scheduling.policy"),
        ({"maxBatchSize": 0}, "stable.scheduling.maxBatchSize"),
        ({"outputReservation": "Half"}, "stable.scheduling.outputReservation"),
        ({"binCount": 4}, "stable.scheduling.binCount"),
    ],
)
def test_how_batches_are_formed_is_read_strictly(scheduling: Any, field: str) -> None:
    with pytest.raises(RuntimeFileError) as refusal:
        parse_runtime_file(text_of({"stable": {**STABLE, "scheduling": scheduling}}))
    assert refusal.value.field == field


def test_how_batches_are_formed_is_part_of_the_revision() -> None:
    full = {"outputReservation": "Full"}
    file = RuntimeFile.of(values(scheduling=full))
    assert parse_runtime_file(canonical_json(file)) == file
    assert file.revision != RuntimeFile.of(values()).revision
