# SPDX-License-Identifier: Apache-2.0
"""Latencies by their definitions, and which requests are a sample, a miss, or neither."""

import pytest

from headway_api.objectives import Metric, Objective
from headway_server.accounting import Account, Latencies, Outcome, Timeline, verdicts


def objective(metric: Metric, milliseconds: int) -> Objective:
    return Objective(metric=metric, percentile=95, threshold_milliseconds=milliseconds)


EVERY = [objective(metric, 100) for metric in ("TTFT", "TPOT", "ITL", "E2E", "QueueTime")]


def test_latencies_follow_their_definitions() -> None:
    timeline = Timeline(arrival=10.0, queue_seconds=0.25)
    for now in (11.0, 11.5, 13.0):
        timeline.note(now, 1)
    latencies = timeline.latencies()
    assert latencies.ttft == (1.0,)
    assert latencies.tpot == (1.0,)  # (13.0 - 11.0) / (3 - 1)
    assert latencies.itl == (0.5, 1.5)
    assert latencies.e2e == (3.0,)
    assert latencies.queue_time == (0.25,)


def test_tokens_that_come_together_are_one_gap() -> None:
    timeline = Timeline(arrival=0.0)
    timeline.note(1.0, 1)
    timeline.note(2.0, 3)
    assert timeline.latencies().itl == (1.0,)
    assert timeline.latencies().tpot == pytest.approx((1 / 3,))


def test_single_token_has_no_time_per_output_token() -> None:
    timeline = Timeline(arrival=0.0)
    timeline.note(1.0, 1)
    account = Account("chat", Outcome.STOP, latencies=timeline.latencies())
    assert list(verdicts(account, [objective("TPOT", 1), objective("ITL", 1)])) == []
    assert list(verdicts(account, [objective("TTFT", 1000)])) == [("TTFT-p95-1000ms", True)]


def test_threshold_itself_is_kept_and_a_gap_counts_singly() -> None:
    latencies = Latencies(ttft=(0.1,), tpot=(0.1001,), itl=(0.05, 0.1, 0.2), e2e=(9.0,))
    account = Account("chat", Outcome.LENGTH, latencies=latencies)
    assert list(verdicts(account, EVERY)) == [
        ("TTFT-p95-100ms", True),
        ("TPOT-p95-100ms", False),
        ("ITL-p95-100ms", True),
        ("ITL-p95-100ms", True),
        ("ITL-p95-100ms", False),
        ("E2E-p95-100ms", False),
    ]


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.ERROR, Outcome.DEADLINE])
def test_refused_and_failed_requests_miss_every_objective(outcome: Outcome) -> None:
    fast = Latencies(ttft=(0.001,))
    judged = list(verdicts(Account("chat", outcome, latencies=fast), EVERY))
    assert judged == [(each.label, False) for each in EVERY]


@pytest.mark.parametrize("outcome", [Outcome.ABORT, Outcome.INVALID])
def test_what_the_client_did_itself_is_no_sample(outcome: Outcome) -> None:
    slow = Latencies(ttft=(99.0,))
    assert list(verdicts(Account("chat", outcome, latencies=slow), EVERY)) == []
