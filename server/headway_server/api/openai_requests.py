# SPDX-License-Identifier: Apache-2.0
"""What a client may ask, in OpenAI's words. Types are strict; what is not known is ignored.

Each refusal is one sentence with the parameter's name.
"""

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from headway_server.api.structured_outputs import ResponseFormat, StructuredOutputs
from headway_server.engine.messages import Sampling
from headway_server.problem import Problem
from headway_server.text_codec import Message

STOPS_MAX = 4
STOP_CHARACTERS_MAX = 512
STOP_TOKENS_MAX = 128
NAME_CHARACTERS_MAX = 256
BIASES_MAX = 1024
BIAS_MAX = 100
TOP_LOGPROBS_MAX = 20
REPETITION_PENALTY_MAX = 10
SEED_BITS = (1 << 63) - 1
COMPLETION_TOKENS = 16


def _one_choice(n: int | None) -> int | None:
    if n not in (None, 1):
        raise ValueError("must be 1, because this server gives one choice per request")
    return n


def _stop_strings(stop: Any) -> Any:
    stops = [stop] if isinstance(stop, str) else stop or []
    if not (isinstance(stops, list) and all(isinstance(each, str) for each in stops)):
        raise ValueError("must be a string or a list of strings")
    if len(stops) > STOPS_MAX:
        raise ValueError(f"has {len(stops)} strings; at most {STOPS_MAX} are allowed")
    if not all(0 < len(each) <= STOP_CHARACTERS_MAX for each in stops):
        raise ValueError(f"each string must have 1 to {STOP_CHARACTERS_MAX} characters")
    return tuple(stops)


def _stop_tokens(token_ids: Any) -> Any:
    token_ids = [] if token_ids is None else token_ids
    if not (isinstance(token_ids, list) and all(type(each) is int for each in token_ids)):
        raise ValueError("must be a list of token ids")
    if len(token_ids) > STOP_TOKENS_MAX:
        raise ValueError(f"has {len(token_ids)} tokens; at most {STOP_TOKENS_MAX} are allowed")
    return frozenset(token_ids)


def _biases(biases: Any) -> Any:
    """OpenAI's object of token ids, which JSON makes strings, to numbers."""
    biases = {} if biases is None else biases
    if not (isinstance(biases, dict) and all(key.isdecimal() for key in biases)):
        raise ValueError("must be an object whose names are token ids")
    if len(biases) > BIASES_MAX:
        raise ValueError(f"has {len(biases)} tokens; at most {BIASES_MAX} are allowed")
    for bias in biases.values():
        if isinstance(bias, bool) or not isinstance(bias, int | float) or abs(bias) > BIAS_MAX:
            raise ValueError(f"each bias must be a number from -{BIAS_MAX} to {BIAS_MAX}")
    return tuple((int(token[:20]), float(bias)) for token, bias in biases.items())


def _text_of_content(content: Any) -> Any:
    """The text of a string or of a list of text parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise ValueError("must be a string or a list of text parts")
    return "\n".join(map(_text_of_part, content))


def _text_of_part(part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise ValueError("has a part that is not of type text; this server takes text only")
    if not isinstance(text := part.get("text"), str):
        raise ValueError("has a text part without text")
    return text


def _one_prompt(prompt: Any) -> Any:
    """A string or a tuple of token ids, out of OpenAI's four forms."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise ValueError(f"holds {len(prompt)} prompts; send one per request")
        prompt = prompt[0]
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        prompt = tuple(prompt)
    if not isinstance(prompt, str | tuple):
        raise ValueError("must be a string or a list of token ids")
    if not prompt:
        raise ValueError("must not be empty")
    return prompt


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class StreamOptions(_Model):
    include_usage: bool | None = None


class ChatMessage(_Model):
    role: str = Field(pattern=r"^[a-z_]{1,32}$")
    content: Annotated[str, BeforeValidator(_text_of_content)] = ""

    def as_message(self) -> Message:
        return {"role": self.role, "content": self.content}


TokenCount = Annotated[int, Field(ge=1, le=2**31 - 1)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
TopLogprobs = Annotated[int, Field(ge=0, le=TOP_LOGPROBS_MAX)]


class GenerationRequest(_Model):
    """What both kinds of completion have in common."""

    model: str = Field(max_length=NAME_CHARACTERS_MAX)
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    min_p: Share | None = None
    repetition_penalty: (
        Annotated[float, Field(gt=0, le=REPETITION_PENALTY_MAX, allow_inf_nan=False)] | None
    ) = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Annotated[tuple[tuple[int, float], ...], BeforeValidator(_biases)] = ()
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    stop_token_ids: Annotated[frozenset[int], BeforeValidator(_stop_tokens)] = frozenset()
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=NAME_CHARACTERS_MAX)] | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_stop_strings)] = ()
    n: Annotated[int | None, AfterValidator(_one_choice)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Field(max_length=NAME_CHARACTERS_MAX)] | None = None
    ignore_eos: bool | None = None

    @property
    def sampling(self) -> Sampling:
        """OpenAI's defaults; `top_k` -1 means, as 0 does, that it does not limit."""
        return Sampling(
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(0, self.top_k or 0),
            seed=None if self.seed is None else self.seed & SEED_BITS,
            min_p=self.min_p or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=self.logit_bias,
            logprobs=self.asked_logprobs,
        )

    @property
    def asked_logprobs(self) -> int | None:
        """None: no logprobs; n: the drawn token's and those of the n most probable."""
        return None

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def output_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def default_output_tokens(self) -> int | None:
        return None


class ChatRequest(GenerationRequest):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None

    @property
    def asked_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def output_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(GenerationRequest):
    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_one_prompt)]
    logprobs: TopLogprobs | None = None

    @property
    def asked_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def default_output_tokens(self) -> int | None:
        return COMPLETION_TOKENS


Kind = TypeVar("Kind", bound=GenerationRequest)


def parse(kind: type[Kind], body: Any) -> Kind:
    """Raises Problem, naming the first parameter that is wrong."""
    if not isinstance(body, dict):
        raise Problem(400, "The body must be a JSON object.")
    try:
        asked = kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = _path(first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        message = f"{param} {text}" if first["type"] == "value_error" else f"{param}: {text}"
        raise Problem(400, f"{message}.", param=param) from error
    _check_together(asked)
    return asked


def _check_together(asked: GenerationRequest) -> None:
    if isinstance(asked, ChatRequest) and asked.top_logprobs is not None and not asked.logprobs:
        raise Problem(400, "top_logprobs needs logprobs to be true.", param="top_logprobs")
    least, most = asked.min_tokens or 0, asked.output_tokens
    if most is not None and least > most:
        message = f"min_tokens is {least}, above the answer's limit of {most} tokens."
        raise Problem(400, message, param="min_tokens")


def _path(location: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")
