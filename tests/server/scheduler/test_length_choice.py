# SPDX-License-Identifier: Apache-2.0
"""The predictor in force changes while the engine runs, and is judged."""

from headway_server.scheduler import Request
from headway_server.scheduler.bins_accuracy import BinHits
from headway_server.scheduler.history import History
from headway_server.scheduler.length import MaxTokens
from headway_server.scheduler.length_choice import LengthChoice

ASKED = Request("r", "chat", "t", 10, 500, arrival=0.0)


def test_a_predictor_that_is_chosen_late_knows_what_came_before() -> None:
    lengths = LengthChoice({"MaxTokens": MaxTokens(), "History": History()}, "MaxTokens", bins=4)
    for _ in range(50):
        lengths.learn(ASKED, 20)
    assert lengths.expect(ASKED).tokens == 500
    lengths.choose("History", bins=4)
    assert lengths.expect(ASKED).tokens == 20
    assert lengths.expect(ASKED, generated=30).tokens == 500


def test_the_one_in_force_is_judged_before_it_is_told() -> None:
    lengths = LengthChoice(
        {"MaxTokens": MaxTokens(), "History": History(enough=8)}, "History", bins=2
    )
    groups = [Request("r", "chat", "t", 10, 500, 0.0, prompt_group=group) for group in (1, 2)]
    for _ in range(60):
        for request, tokens in zip(groups, (10, 200), strict=True):
            lengths.learn(request, tokens)
    assert lengths.hits() == {"History": BinHits(88, 88, 88), "MaxTokens": BinHits()}
    lengths.choose("MaxTokens", bins=2)
    for _ in range(32):
        lengths.learn(groups[0], 10)
        lengths.learn(groups[1], 200)
    assert lengths.hits() == {"History": BinHits(88, 88, 88), "MaxTokens": BinHits(32, 16, 32)}
