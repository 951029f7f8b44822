# SPDX-License-Identifier: Apache-2.0
"""Which form an answer must have: OpenAI's `response_format`, and vLLM's `structured_outputs`."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headway_server.problem import Problem
from headway_server.runner.grammar import Grammar, Kind

NAME_CHARACTERS_MAX = 64
ANY_OBJECT = Grammar("json", '{"type":"object"}')


def _schema_text(schema: Any) -> Any:
    """A JSON schema as text, its properties in the order in which they came."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict):
        raise ValueError("must be a JSON schema")
    try:
        return orjson.dumps(schema).decode()
    except orjson.JSONEncodeError as error:
        raise ValueError("is nested too deep") from error


SchemaText = Annotated[str, BeforeValidator(_schema_text)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class JsonSchema(_Model):
    name: Annotated[str, Field(max_length=NAME_CHARACTERS_MAX)] | None = None
    text: SchemaText = Field(alias="schema")


class ResponseFormat(_Model):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(_Model):
    json_text: SchemaText | None = Field(default=None, alias="json")
    regex: str | None = None
    grammar: str | None = None


@dataclass(frozen=True, slots=True)
class AskedGrammar:
    """`param` is what a refusal of it names."""

    param: str
    grammar: Grammar


def grammar_of(
    response_format: ResponseFormat | None, structured_outputs: StructuredOutputs | None
) -> AskedGrammar | None:
    """Raises Problem where the parameters do not say one thing."""
    of_response = _of_response_format(response_format) if response_format else None
    of_structure = _of_structured_outputs(structured_outputs) if structured_outputs else None
    if of_response and of_structure:
        message = "structured_outputs cannot be combined with response_format: send one of them."
        raise Problem(400, message, param="structured_outputs")
    return of_response or of_structure


def _of_response_format(asked: ResponseFormat) -> AskedGrammar | None:
    match asked.type:
        case "text":
            return None
        case "json_object":
            return AskedGrammar("response_format", ANY_OBJECT)
    if asked.json_schema is None:
        message = "response_format.json_schema is missing: type json_schema needs it."
        raise Problem(400, message, param="response_format.json_schema")
    return AskedGrammar(
        "response_format.json_schema.schema", Grammar("json", asked.json_schema.text)
    )


def _of_structured_outputs(asked: StructuredOutputs) -> AskedGrammar:
    forms: tuple[tuple[str, Kind, str | None], ...] = (
        ("json", "json", asked.json_text),
        ("regex", "regex", asked.regex),
        ("grammar", "lark", asked.grammar),
    )
    given = [
        AskedGrammar(f"structured_outputs.{name}", Grammar(kind, text))
        for name, kind, text in forms
        if text is not None
    ]
    if len(given) != 1:
        message = "structured_outputs must have one of json, regex and grammar."
        raise Problem(400, message, param="structured_outputs")
    return given[0]
