# SPDX-License-Identifier: Apache-2.0
"""The figures of a run: definitions, and what never enters a latency."""

import pytest

from headway_bench.summary import Objective, attainment, percentile, summarise
from headway_bench.timing import RequestTiming


def timing(*tokens: float, intended: float = 0.0, error: str | None = None) -> RequestTiming:
    end = tokens[-1] if tokens else 1.0
    return RequestTiming(intended, intended + 0.5, tokens, end, 10, len(tokens), error)


def test_ttft_counts_from_the_intended_start_not_from_a_late_send() -> None:
    assert timing(2.0, intended=0.5).ttft == 1.5


def test_tpot_is_the_mean_gap_after_the_first_token_and_undefined_for_one() -> None:
    assert timing(1.0, 1.2, 1.8).tpot == pytest.approx(0.4)
    assert timing(1.0).tpot is None


def test_several_tokens_in_one_chunk_keep_tpot_per_token() -> None:
    two_chunks = RequestTiming(0.0, 0.0, (1.0, 2.0), 2.0, 5, 11)
    assert two_chunks.tpot == pytest.approx(0.1)


@pytest.mark.parametrize(("rank", "expected"), [(50, 2.0), (95, 4.0), (99, 4.0), (25, 1.0)])
def test_percentile_is_a_value_that_was_measured(rank: int, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], rank) == expected


def test_a_failed_request_is_a_miss_and_not_a_latency() -> None:
    objective = Objective("TTFT", 95, 1000)
    timings = [timing(0.2, 0.3), timing(0.1, error="HTTP 503")]
    assert attainment(timings, objective) == 0.5
    report = summarise(timings, 2.0, [objective])
    assert (report["requests"], report["failed"]) == (2, 1)
    assert report["errors"] == {"HTTP 503": 1}
    assert report["ttftMilliseconds"]["p99"] == 200.0


def test_a_run_without_requests_has_no_attainment() -> None:
    assert attainment([], Objective("TTFT", 95, 1000)) is None
    assert summarise([], 1.0, [])["ttftMilliseconds"]["p50"] is None


@pytest.mark.parametrize("text", ["TTFT", "TTFT:95", "FOO:95:800", "TTFT:100:800", "TTFT:95:0"])
def test_a_bad_objective_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Objective.parse(text)
