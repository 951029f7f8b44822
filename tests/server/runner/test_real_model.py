# SPDX-License-Identifier: Apache-2.0
"""SmolLM2 through the whole engine: sensible answers, and the same tokens in any company."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headway_server.engine.core import EngineCore
from headway_server.engine.inbox import Inbox
from headway_server.engine.messages import Sampling, Submission
from headway_server.scheduler import Knobs, Settings, WorkloadPolicy

QUESTIONS = (
    "What is the capital of France? Answer in one sentence.",
    "Name three colours.",
    "Is water wet? Explain to a child, please, in simple words and short sentences.",
)
EOS = 2

Play = Callable[..., dict[str, list[int]]]


@pytest.fixture(scope="module")
def prompts(smollm2: Path) -> dict[str, tuple[int, ...]]:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    return {
        question: tuple(
            tokenizer.apply_chat_template(
                [{"role": "user", "content": question}],
                add_generation_prompt=True,
                return_dict=False,
            )
        )
        for question in QUESTIONS
    }


@pytest.fixture(scope="module")
def runner(smollm2: Path, load: Any) -> Any:
    return load(smollm2)


@pytest.fixture
def play(runner: Any, prompts: dict[str, tuple[int, ...]]) -> Play:
    """Submits the questions two steps apart; prompts are cut into chunks of 24 tokens."""

    def play(questions: tuple[str, ...], output: int, sampling: Sampling) -> dict[str, list[int]]:
        inbox = Inbox()
        knobs = Knobs(1024, 24, waiting_served_ratio_percent=0)
        settings = Settings((WorkloadPolicy("chat", knobs),))
        core = EngineCore(runner, settings, inbox, lambda: 0.0, lambda: 0)
        answers: dict[str, list[int]] = {question: [] for question in questions}
        coming = list(questions)
        turn = 0
        while coming or inbox.open_requests:
            if coming and (turn % 2 == 0 or not inbox.open_requests):
                question = coming.pop(0)
                inbox.submit(
                    Submission(
                        question,
                        "chat",
                        "t",
                        prompts[question],
                        output,
                        sampling,
                        frozenset([EOS]),
                        arrival=0.0,
                    ),
                    0.0,
                )
            for out in core.turn():
                answers[out.request_id] += out.token_ids
                inbox.settle(out.finish is not None)
            turn += 1
        assert core.snapshot().kv_used_tokens == 0
        return answers

    return play


def test_it_knows_the_capital_of_france(smollm2: Path, play: Play) -> None:
    (answer,) = play(QUESTIONS[:1], 20, Sampling()).values()
    text = AutoTokenizer.from_pretrained(smollm2).decode(answer)
    assert text == "The capital of France is Paris."


def test_greedy_tokens_are_the_models_own_and_the_same_alone_and_together(
    smollm2: Path, play: Play, prompts: dict[str, tuple[int, ...]]
) -> None:
    together = play(QUESTIONS, 8, Sampling())
    for question in QUESTIONS:
        assert play((question,), 8, Sampling())[question] == together[question]
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    for question, answer in together.items():
        assert answer
        tokens = torch.tensor([[*prompts[question], *answer]])
        with torch.inference_mode():
            logits = model(tokens, logits_to_keep=len(answer) + 1).logits[0, :-1]
        chosen = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        assert (logits.max(dim=-1).values - chosen).max() < 1e-3


def test_a_seeded_answer_is_the_same_alone_and_together(play: Play) -> None:
    sampling = Sampling(temperature=0.8, top_p=0.95, top_k=50, seed=11)
    together = play(QUESTIONS, 6, sampling)
    assert play(QUESTIONS[1:2], 6, sampling)[QUESTIONS[1]] == together[QUESTIONS[1]]
