# SPDX-License-Identifier: Apache-2.0
"""How objects read from the API server become models, and what Headway itself puts there."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from headway_api.builtin_classes import BUILTIN_CLASSES
from headway_api.conditions import Condition
from headway_api.events import EventReason
from headway_api.inferencepool import InferencePoolSpec, InferencePoolStatus
from headway_api.inferencepool_status import Decision
from headway_api.objectives import Objective


def test_a_newer_crd_does_not_break_an_older_reader() -> None:
    stored = {"model": {"name": "org/model", "adapter": "x"}, "quota": {"tokens": 1}}
    assert InferencePoolSpec.model_validate(stored).model.name == "org/model"


def test_unknown_fields_can_be_refused_by_name() -> None:
    stored = {"model": {"name": "org/model", "adapter": "x"}}
    with pytest.raises(ValidationError, match=r"model\.adapter"):
        InferencePoolSpec.model_validate(stored, extra="forbid")


def test_json_names_keep_their_initialisms() -> None:
    spec = InferencePoolSpec.model_validate(
        {"model": {"name": "org/model"}, "autotune": {"maxKVUsagePercent": 80}}
    )
    assert spec.autotune.max_kv_usage_percent == 80
    assert spec.model_dump(by_alias=True)["autotune"]["maxKVUsagePercent"] == 80


def test_a_status_written_by_nobody_yet_can_be_read() -> None:
    assert InferencePoolStatus.model_validate({}).conditions is None


def test_times_are_written_in_whole_seconds_of_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=1)))
    condition = Condition(
        type="Ready", status="True", last_transition_time=moment, reason="Ready", message=""
    )
    written = condition.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["lastTransitionTime"] == "2026-01-02T02:04:05Z"
    assert Condition.model_validate(written).last_transition_time == datetime(
        2026, 1, 2, 2, 4, 5, tzinfo=UTC
    )


def test_a_decision_keeps_the_json_name_from() -> None:
    decision = Decision(
        time=datetime(2026, 1, 2, tzinfo=UTC),
        workload_name="chat",
        action="Increase",
        parameter="maxBatchTotalTokens",
        from_=100,
        to=120,
        reason="Headroom",
    )
    written = decision.model_dump(mode="json", by_alias=True)
    assert (written["from"], written["to"]) == (100, 120)


def test_an_objective_has_one_label_in_metrics() -> None:
    objective = Objective(metric="TTFT", threshold_milliseconds=1000)
    assert objective.label == "TTFT-p95-1000ms"


def test_builtin_classes_rank_people_before_batches() -> None:
    ranked = sorted(BUILTIN_CLASSES, key=lambda name: -BUILTIN_CLASSES[name].priority)
    assert ranked == ["priority", "agent", "chat", "batch"]
    assert BUILTIN_CLASSES["batch"].slo is None


def test_bad_news_is_a_warning() -> None:
    assert EventReason.POOL_REFUSED.type == "Warning"
    assert EventReason.TUNING_AT_BOUNDS.type == "Warning"
    assert EventReason.POOL_ADMITTED.type == "Normal"
    assert sum(reason.type == "Normal" for reason in EventReason) == 9
