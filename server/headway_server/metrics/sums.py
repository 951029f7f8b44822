# SPDX-License-Identifier: Apache-2.0
"""What one workload's requests come to: plain sums, and histograms that know its objectives."""

from collections.abc import Mapping

from headway_api.objectives import Metric, Objective
from headway_server.accounting import SERVED, Account, Outcome, verdicts
from headway_server.metrics import edges
from headway_server.metrics.histogram import Histogram, edges_for

ORDINARY_EDGES: Mapping[Metric, tuple[float, ...]] = {
    "TTFT": edges.WAIT,
    "TPOT": edges.GAP,
    "ITL": edges.GAP,
    "QueueTime": edges.WAIT,
    "E2E": edges.WAIT,
}


class WorkloadSums:
    """`verdicts` counts samples by objective label and whether they kept it. Latencies and lengths
    are those of requests that were served to their end."""

    def __init__(self, objectives: tuple[Objective, ...]) -> None:
        self.outcomes = dict.fromkeys(Outcome, 0)
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.verdicts: dict[tuple[str, bool], int] = {}
        self.latencies: dict[Metric, Histogram] = {}
        self.prompt_lengths = Histogram(edges.LENGTH)
        self.output_lengths = Histogram(edges.LENGTH)
        self.judge_by(objectives)

    def judge_by(self, objectives: tuple[Objective, ...]) -> None:
        """A histogram whose edges move with the objectives starts anew: what it holds cannot be
        sorted into other buckets. The others, and the counters, go on."""
        self._objectives = objectives
        self.verdicts = {
            (objective.label, met): self.verdicts.get((objective.label, met), 0)
            for objective in objectives
            for met in (True, False)
        }
        for metric, ordinary in ORDINARY_EDGES.items():
            wanted = edges_for(metric, objectives, ordinary)
            if metric not in self.latencies or self.latencies[metric].edges != wanted:
                self.latencies[metric] = Histogram(wanted)

    def add(self, account: Account) -> None:
        self.outcomes[account.outcome] += 1
        self.prompt_tokens += account.prompt_tokens
        self.generated_tokens += account.generated_tokens
        for verdict in verdicts(account, self._objectives):
            self.verdicts[verdict] += 1
        if account.outcome in SERVED:
            self.prompt_lengths.observe(account.prompt_tokens)
            self.output_lengths.observe(account.generated_tokens)
            for metric, histogram in self.latencies.items():
                for seconds in account.latencies.of(metric):
                    histogram.observe(seconds)

    def copy(self) -> "WorkloadSums":
        twin = WorkloadSums(())
        twin._objectives = self._objectives
        twin.outcomes, twin.verdicts = dict(self.outcomes), dict(self.verdicts)
        twin.prompt_tokens, twin.generated_tokens = self.prompt_tokens, self.generated_tokens
        twin.latencies = {metric: each.copy() for metric, each in self.latencies.items()}
        twin.prompt_lengths = self.prompt_lengths.copy()
        twin.output_lengths = self.output_lengths.copy()
        return twin
