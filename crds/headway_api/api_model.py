# SPDX-License-Identifier: Apache-2.0
"""What every model of the API has in common: JSON names, reading rules, CEL rules.

Reading ignores unknown fields, so that a newer CRD cannot break an older operator; whoever wants
to refuse them passes `extra="forbid"` to `model_validate`. Instances are frozen.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

_INITIALISMS = {"gpus": "GPUs", "kv": "KV"}


def json_name(attribute: str) -> str:
    """The camelCase name of a snake_case attribute; initialisms stay upper after the first word."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)


@dataclass(frozen=True)
class Rule:
    """A CEL validation of the object it is declared on.

    Defaults of an object are validated before the defaults of its members are filled in, so a rule
    on a member with a default guards it with `has()` unless the member's object is required.
    """

    rule: str
    message: str


class ApiModel(BaseModel):
    model_config = ConfigDict(
        alias_generator=json_name,
        populate_by_name=True,
        use_attribute_docstrings=True,
        extra="ignore",
        frozen=True,
        protected_namespaces=(),
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        if cls.rules:
            handler.resolve_ref_schema(schema)["x-kubernetes-validations"] = [
                {"rule": rule.rule, "message": rule.message} for rule in cls.rules
            ]
        return schema
