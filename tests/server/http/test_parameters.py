# SPDX-License-Identifier: Apache-2.0
"""What a client asks reaches the engine as it was asked, or is refused with its name."""

from typing import Any

import pytest
from tests.server.http.serving import Serving

from headway_server.engine.messages import Submission
from headway_server.filler_codec import END_TOKEN_ID
from headway_server.runner.grammar import BYTES_MAX, DEPTH_MAX

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def response_format(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


BAD_FIELDS: list[tuple[str, Any]] = [
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("min_p", "0.1"),
    ("repetition_penalty", 0),
    ("repetition_penalty", 10.5),
    ("repetition_penalty", True),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("frequency_penalty", "1"),
    ("logit_bias", []),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"257": 1}),
    ("logit_bias", {"9" * 5000: 1}),
    ("logit_bias", {"1": 101}),
    ("logit_bias", {"1": True}),
    ("logit_bias", {"1": None}),
    ("logit_bias", {str(token): 0 for token in range(1025)}),
    ("stop_token_ids", 5),
    ("stop_token_ids", [True]),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [257]),
    ("stop_token_ids", list(range(129))),
    ("min_tokens", -1),
    ("min_tokens", 9),
    ("min_tokens", 1.5),
    ("cache_salt", ""),
    ("cache_salt", 5),
    ("cache_salt", "x" * 257),
    ("logprobs", 1),
    ("top_logprobs", 2),
    ("response_format", "json"),
    ("response_format.type", {"type": "xml"}),
    ("response_format.json_schema", {"type": "json_schema"}),
    ("response_format.json_schema.schema", {"type": "json_schema", "json_schema": {"name": "x"}}),
    ("response_format.json_schema.schema", response_format([])),
    ("response_format.json_schema.schema", response_format({"type": "objekt"})),
    ("structured_outputs", {}),
    ("structured_outputs", {"json": {}, "regex": "a"}),
    ("structured_outputs.json", {"json": 5}),
    ("structured_outputs.json", {"json": "{"}),
    ("structured_outputs.regex", {"regex": 5}),
    ("structured_outputs.regex", {"regex": "("}),
    ("structured_outputs.grammar", {"grammar": "start: x"}),
]


@pytest.mark.parametrize(("param", "value"), BAD_FIELDS)
async def test_bad_value_is_named(ready: Serving, param: str, value: Any) -> None:
    field = param.partition(".")[0]
    response = await ready.chat(max_tokens=8, **{field: value})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(param)
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 500


@pytest.mark.parametrize("value", [True, 21, -1, "1"])
async def test_logprobs_of_completions_are_a_number(ready: Serving, value: Any) -> None:
    response = await ready.complete(logprobs=value)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "logprobs"


@pytest.mark.parametrize("value", [21, -1, True])
async def test_top_logprobs_are_bounded(ready: Serving, value: Any) -> None:
    response = await ready.chat(logprobs=True, top_logprobs=value)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "top_logprobs"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"ignore_eos": True}, "ignore_eos"),
    ],
)
async def test_what_contradicts_a_grammar_is_refused(
    ready: Serving, fields: dict[str, Any], param: str
) -> None:
    response = await ready.chat(response_format=response_format(SCHEMA), **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"enum": ["x" * BYTES_MAX]}, f"at most {BYTES_MAX}"),
        (nested(DEPTH_MAX), f"{DEPTH_MAX} levels"),
        (nested(300), "nested"),
    ],
)
async def test_schemas_have_limits_and_cost_nothing_beyond_them(
    gated: Serving, schema: Any, words: str
) -> None:
    response = await gated.chat(response_format=response_format(schema))
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert gated.sample("headway_kv_tokens", state="used") == 0
    assert gated.state.waiting == 0


@pytest.fixture
def submitted(ready: Serving, monkeypatch: pytest.MonkeyPatch) -> list[Submission]:
    """What reaches the engine."""
    submissions: list[Submission] = []
    submit = ready.service._submit

    def keep(submission: Submission, *rest: Any) -> Any:
        submissions.append(submission)
        return submit(submission, *rest)

    monkeypatch.setattr(ready.service, "_submit", keep)
    return submissions


async def test_parameters_reach_the_engine(ready: Serving, submitted: list[Submission]) -> None:
    response = await ready.chat(
        max_tokens=4,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=-1,
        frequency_penalty=0.5,
        logit_bias={"5": 1.5, "6": -100},
        min_tokens=3,
        stop_token_ids=[7, 8],
        logprobs=True,
        top_logprobs=2,
        cache_salt="s",
    )
    assert response.status_code == 200
    (submission,) = submitted
    sampling = submission.sampling
    assert sampling.min_p == 0.1
    assert sampling.repetition_penalty == 1.2
    assert sampling.presence_penalty == -1
    assert sampling.frequency_penalty == 0.5
    assert sampling.logit_bias == ((5, 1.5), (6, -100))
    assert sampling.logprobs == 2
    assert submission.min_new_tokens == 3
    assert submission.stop_token_ids == {7, 8, END_TOKEN_ID}
    assert submission.cache_salt == "s"


async def test_defaults_change_nothing(ready: Serving, submitted: list[Submission]) -> None:
    names = ["min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"]
    names += ["min_tokens", "stop_token_ids", "cache_salt", "response_format"]
    names += ["structured_outputs", "logprobs", "top_logprobs"]
    await ready.chat(max_tokens=1, temperature=0)
    await ready.chat(max_tokens=1, temperature=0, **dict.fromkeys(names))
    await ready.chat(max_tokens=1, temperature=0, response_format={"type": "text"})
    for submission in submitted:
        assert not submission.sampling.uses_history
        assert submission.sampling.logprobs is None
        assert submission.matcher is None
        assert submission.sampling == submitted[0].sampling


async def test_zero_top_logprobs_gives_the_drawn_token_only(
    ready: Serving, submitted: list[Submission]
) -> None:
    await ready.chat(max_tokens=1, logprobs=True)
    await ready.chat(max_tokens=1, logprobs=False)
    assert [each.sampling.logprobs for each in submitted] == [0, None]


async def test_ignoring_the_end_leaves_the_other_stop_tokens(
    ready: Serving, submitted: list[Submission]
) -> None:
    await ready.chat(max_tokens=1, ignore_eos=True, stop_token_ids=[7])
    assert submitted[0].stop_token_ids == {7}


async def test_requests_with_the_same_instructions_form_a_group(
    ready: Serving, submitted: list[Submission]
) -> None:
    for instructions, question in (("a", "x"), ("a", "y"), ("b", "x")):
        messages = [
            {"role": "system", "content": instructions},
            {"role": "user", "content": question},
        ]
        await ready.chat(max_tokens=1, messages=messages)
    first, second, other = (each.prompt_group for each in submitted)
    assert first == second != other
