# SPDX-License-Identifier: Apache-2.0
"""The runtime file against the envelope: taken whole, or refused with the field and the bound."""

import pytest
from tests.server.http.serving import ENVELOPE, TPOT, TTFT, runtime_file

from headway_api.batching import WorkloadLimits
from headway_api.runtime import RuntimeScheduling
from headway_server.scheduler import Formation, Knobs
from headway_server.settings import SettingsRejected, default_file, resolve


def test_unset_values_are_those_of_the_envelope() -> None:
    settings = resolve(runtime_file(), ENVELOPE)
    assert settings.scheduler.workloads[0].knobs == Knobs(
        max_batch_total_tokens=2048,
        max_batch_prefill_tokens=512,
        waiting_served_ratio_percent=0,
        max_waiting_tokens=20,
    )


def test_set_values_and_limits_reach_the_scheduler() -> None:
    limits = WorkloadLimits(
        max_concurrent_requests=3,
        max_concurrent_requests_per_tenant=2,
        max_queue_length=0,
        queue_timeout_seconds=9,
    )
    batching = {
        "max_batch_total_tokens": 1024,
        "max_batch_prefill_tokens": 64,
        "waiting_served_ratio_percent": 120,
        "max_waiting_tokens": 5,
    }
    file = runtime_file(limits=limits, weight=4, priority=-7, batching=batching)
    settings = resolve(file, ENVELOPE)
    policy = settings.scheduler.workloads[0]
    assert policy.knobs == Knobs(1024, 64, 120, 5)
    assert (policy.priority, policy.weight) == (-7, 4)
    assert (policy.max_running, policy.max_running_per_tenant) == (3, 2)
    assert (policy.max_queue_length, policy.queue_timeout_seconds) == (0, 9)
    assert settings.revision == settings.scheduler.revision == file.revision
    assert settings.terms["chat"].objectives == (TTFT, TPOT)
    assert settings.default_workload == "chat"


def test_input_limit_of_a_workload_cannot_exceed_the_envelope() -> None:
    settings = resolve(runtime_file(limits=WorkloadLimits(max_input_tokens=9999)), ENVELOPE)
    assert settings.terms["chat"].max_input_tokens == ENVELOPE.max_input_tokens


@pytest.mark.parametrize(
    ("budget", "bound", "reason"),
    [(2049, "2048", "KV capacity"), (10**9, "2048", "KV capacity"), (255, "256", "maxTotalTokens")],
)
def test_budget_outside_the_envelope_is_refused(budget: int, bound: str, reason: str) -> None:
    with pytest.raises(SettingsRejected) as refusal:
        resolve(runtime_file(batching={"max_batch_total_tokens": budget}), ENVELOPE)
    assert refusal.value.field == "stable.workloads[0].batching.maxBatchTotalTokens"
    assert str(budget) in refusal.value.message
    assert bound in refusal.value.message
    assert reason in refusal.value.message


@pytest.mark.parametrize("budget", [256, 2048])
def test_budget_at_either_bound_is_taken(budget: int) -> None:
    settings = resolve(runtime_file(batching={"max_batch_total_tokens": budget}), ENVELOPE)
    assert settings.scheduler.workloads[0].knobs.max_batch_total_tokens == budget


def test_how_batches_are_formed_reaches_the_scheduler() -> None:
    asked = RuntimeScheduling(
        policy="MultiBin",
        max_batch_size=7,
        max_delay_milliseconds=250,
        bins=3,
        length_predictor="MaxTokens",
        length_aware="Enabled",
        output_reservation="Full",
    )
    assert resolve(runtime_file(scheduling=asked), ENVELOPE).scheduler.formation == Formation(
        policy="MultiBin",
        max_batch_size=7,
        max_delay_seconds=0.25,
        bins=3,
        length_predictor="MaxTokens",
        length_aware=True,
        output_reservation="Full",
    )


def test_file_that_does_not_say_how_batches_are_formed_means_the_defaults_of_the_api() -> None:
    formation = resolve(runtime_file(), ENVELOPE).scheduler.formation
    assert (
        formation
        == resolve(runtime_file(scheduling=RuntimeScheduling()), ENVELOPE).scheduler.formation
    )
    assert (formation.policy, formation.output_reservation) == ("Continuous", "Expected")


def test_server_without_a_file_serves_one_workload_with_the_chat_objectives() -> None:
    settings = resolve(default_file(), ENVELOPE)
    assert list(settings.terms) == ["default"]
    labels = [objective.label for objective in settings.terms["default"].objectives]
    assert labels == ["TTFT-p95-1000ms", "TPOT-p95-50ms"]
    assert settings.max_concurrent_requests == 128
