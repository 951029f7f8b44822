# SPDX-License-Identifier: Apache-2.0
"""What one request makes of the engine's outputs, also where a step brings several tokens."""

import pytest

from headway_server.accounting import Outcome, Timeline
from headway_server.engine.messages import Finish, TokenLogprob, TokenOutput
from headway_server.filler_codec import filler_codec
from headway_server.generation import Delta, Generation, shutting_down
from headway_server.problem import Problem
from headway_server.scheduler import Refusal

CODEC = filler_codec()


def generation_of(*stops: str, gives_logprobs: bool = False) -> Generation:
    return Generation(
        request_id="r",
        workload="chat",
        timeline=Timeline(arrival=0.0, prompt_tokens=1),
        detokeniser=CODEC.detokeniser(),
        stops=stops,
        backlog_tokens=100,
        cancel=lambda: None,
        retry_after=lambda: 1,
        gives_logprobs=gives_logprobs,
    )


async def deltas_of(generation: Generation, *steps: TokenOutput) -> list[Delta | None]:
    for time, output in enumerate(steps, start=1):
        generation.deliver(float(time), output)
    return [delta async for delta in generation.deltas(idle_seconds=30)]


async def test_tokens_after_a_stop_string_are_neither_shown_nor_counted() -> None:
    generation = generation_of("lo w")
    step = TokenOutput("r", CODEC.encode_text("hello world"))
    assert await deltas_of(generation, step) == [Delta("hel", "stop")]
    assert generation.timeline.generated_tokens == len("hello w")


async def test_end_token_counts_as_a_token_and_has_no_text() -> None:
    generation = generation_of()
    step = TokenOutput("r", CODEC.encode_text("hi"))
    assert await deltas_of(generation, step, TokenOutput("r", (), Finish.STOP)) == [
        Delta("hi", "stop")
    ]
    assert generation.timeline.generated_tokens == 3
    assert generation.account().outcome is Outcome.STOP


async def test_what_was_held_back_comes_when_the_answer_ends_otherwise() -> None:
    generation = generation_of("xyz")
    step = TokenOutput("r", CODEC.encode_text("abxy"), Finish.LENGTH)
    assert await deltas_of(generation, step) == [Delta("abxy", "length")]


async def test_text_and_verdict_come_together_when_the_last_step_completes_a_stop_string() -> None:
    generation = generation_of("b")
    step = TokenOutput("r", CODEC.encode_text("ab"), Finish.LENGTH)
    assert await deltas_of(generation, step) == [Delta("a", "stop")]
    assert generation.timeline.generated_tokens == 2


async def test_silence_is_told_as_none() -> None:
    generation = generation_of()
    deltas = generation.deltas(idle_seconds=0)
    assert await anext(deltas) is None
    generation.deliver(1.0, TokenOutput("r", (), Finish.STOP))
    assert await anext(deltas) == Delta("", "stop")


async def test_why_the_engine_stopped_is_not_told() -> None:
    generation = generation_of()
    reason = "the engine thread died: RuntimeError: /secret"
    output = TokenOutput("r", finish=Finish.REFUSED, error=reason, refusal=Refusal.STOPPING)
    with pytest.raises(Problem) as problem:
        await deltas_of(generation, output)
    assert problem.value.status == 503
    assert "secret" not in problem.value.message


async def test_answer_that_is_cut_off_has_failed_and_was_not_refused() -> None:
    generation = generation_of()
    generation.deliver(1.0, TokenOutput("r", CODEC.encode_text("a")))
    deltas = generation.deltas(idle_seconds=30)
    assert await anext(deltas) == Delta("a")
    generation.break_off(shutting_down())
    with pytest.raises(Problem):
        await anext(deltas)
    assert generation.account().outcome is Outcome.ERROR


def with_logprobs(text: str, finish: Finish | None = None) -> TokenOutput:
    tokens = CODEC.encode_text(text)
    return TokenOutput("r", tokens, finish, logprobs=tuple(TokenLogprob(t, -1.0) for t in tokens))


def spelled(delta: Delta | None) -> str:
    assert delta is not None
    utf8 = b"".join(CODEC.spell(each.logprob.token_id).utf8 for each in delta.logprobs)
    return utf8.decode(errors="replace")


async def test_logprobs_come_with_the_text_they_belong_to() -> None:
    generation = generation_of("xyz", gives_logprobs=True)
    steps = [with_logprobs("abx"), with_logprobs("y"), with_logprobs("cx", Finish.LENGTH)]
    deltas = []
    for step in steps:
        generation.deliver(1.0, step)
        deltas += [await anext(generation.deltas(idle_seconds=0))]
    assert [spelled(delta) if delta else None for delta in deltas] == ["ab", None, "xycx"]
    assert [delta.text if delta else None for delta in deltas] == ["ab", None, "xycx"]


async def test_logprobs_of_a_stop_string_are_not_shown() -> None:
    generation = generation_of("lo w", gives_logprobs=True)
    (delta,) = await deltas_of(generation, with_logprobs("hello world"))
    assert spelled(delta) == "hel"
    assert [each.start for each in delta.logprobs] == [0, 1, 2] if delta else False


async def test_logprobs_of_a_character_in_several_tokens_are_complete() -> None:
    generation = generation_of(gives_logprobs=True)
    last = CODEC.encode_text("\U0001fae0")[:-1]
    cut = TokenOutput("r", last, Finish.LENGTH, logprobs=tuple(TokenLogprob(t, 0.0) for t in last))
    deltas = await deltas_of(generation, with_logprobs("a\U0001fae0"), cut)
    (delta,) = deltas
    assert delta is not None
    assert [each.logprob.token_id for each in delta.logprobs] == [
        *CODEC.encode_text("a\U0001fae0"),
        *last,
    ]


async def test_without_the_wish_there_are_no_logprobs() -> None:
    (delta,) = await deltas_of(generation_of(), with_logprobs("ab", Finish.LENGTH))
    assert delta == Delta("ab", "length")
