# SPDX-License-Identifier: Apache-2.0
"""What becomes a structural schema, and which models are refused because they could not be one."""

from typing import Annotated, Any, ClassVar, Literal, Optional, Union

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from headway_api.api_model import ApiModel, Rule
from headway_api.fields import CountOrPercent, Int32, Int64, Keywords, Timestamp, list_map
from headway_api.structural import UnsupportedSchema, structural_schema

Text = Annotated[str, Field(max_length=8)]


class Part(ApiModel):
    """A part."""

    name: Text
    """Name of the part."""
    size: Int32 = 3


class Tree(ApiModel):
    children: Annotated[list["Tree"], Field(max_length=2)] = Field(default_factory=list)


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def schema_of(annotation: Any, default: Any = ...) -> dict[str, Any]:
    """The schema of a field `value` of this type."""
    model = create_model("Probe", __base__=ApiModel, value=(annotation, default))
    found: dict[str, Any] = structural_schema(model)["properties"]["value"]
    return found


def keywords(node: Any) -> set[str]:
    if isinstance(node, dict):
        return set(node).union(*(keywords(child) for child in node.values()))
    return set().union(*(keywords(child) for child in node)) if isinstance(node, list) else set()


def test_references_are_written_out() -> None:
    assert schema_of(Part) == {
        "description": "A part.",
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"description": "Name of the part.", "type": "string", "maxLength": 8},
            "size": {"type": "integer", "format": "int32", "default": 3},
        },
    }


def test_a_model_inside_itself_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match=r"Tree\.children\[\]: Tree contains itself"):
        structural_schema(Tree)


def test_an_optional_member_is_neither_nullable_nor_defaulted_to_null() -> None:
    assert schema_of(Optional[Text], None) == {"type": "string", "maxLength": 8}  # noqa: UP045
    assert "default" not in schema_of(Part | None, None)


def test_a_constant_is_an_enum_of_one() -> None:
    assert schema_of(Literal["v1"]) == {"type": "string", "enum": ["v1"]}


def test_a_count_or_percentage_is_int_or_string() -> None:
    schema = schema_of(CountOrPercent, 1)
    assert schema["x-kubernetes-int-or-string"] is True
    assert schema["minimum"] == 0
    assert schema["default"] == 1
    assert schema["pattern"].endswith("%$")
    assert not schema.keys() & {"type", "anyOf"}


def test_exclusive_bounds_take_their_older_spelling() -> None:
    schema = schema_of(Annotated[Int32, Field(gt=0, lt=9)])
    assert (schema["minimum"], schema["exclusiveMinimum"]) == (0, True)
    assert (schema["maximum"], schema["exclusiveMaximum"]) == (9, True)


def test_forbidding_unknown_fields_is_left_to_pruning() -> None:
    class Closed(ApiModel):
        model_config = ConfigDict(extra="forbid")

        name: Text

    assert "additionalProperties" not in keywords(structural_schema(Closed))


@pytest.mark.parametrize("annotation", [Part | Tree, Text | Part, Int32 | bool])
def test_alternatives_are_refused(annotation: Any) -> None:
    with pytest.raises(UnsupportedSchema, match=r"Probe\.value: has alternatives"):
        schema_of(annotation)


def test_discriminated_unions_are_refused() -> None:
    pets = Annotated[Union[Cat, Dog], Field(discriminator="kind")]  # noqa: UP007
    with pytest.raises(UnsupportedSchema, match=r"Probe\.value: .*discriminator, oneOf"):
        schema_of(pets)


@pytest.mark.parametrize(
    "annotation",
    [
        tuple[Text, Int32],
        Annotated[set[Text], Field(max_length=2)],
        Annotated[Text, Keywords(x_kubernetes_preserve_unknown_fields=True)],
        Annotated[dict[Annotated[str, Field(pattern="^a")], Text], Field(max_length=2)],
    ],
)
def test_keywords_outside_a_structural_schema_are_refused(annotation: Any) -> None:
    with pytest.raises(UnsupportedSchema, match=r"Probe\.value: a structural schema has no"):
        schema_of(annotation)


def test_titles_examples_and_access_hints_are_dropped() -> None:
    field = Field(max_length=8, title="T", examples=["a"], deprecated=True)
    shown = schema_of(Annotated[str, field, Keywords(readOnly=True, writeOnly=True)])
    assert shown == {"type": "string", "maxLength": 8}


def test_a_default_object_holds_only_what_was_written() -> None:
    assert schema_of(Part | None, Part(name="a"))["default"] == {"name": "a"}
    parts = Annotated[list[Part], Field(max_length=2)]
    assert schema_of(parts, [Part(name="a")])["default"] == [{"name": "a"}]


@pytest.mark.parametrize(
    ("annotation", "missing"),
    [
        (str, "maxLength"),
        (list[Text], "maxItems"),
        (dict[str, Text], "maxProperties"),
        (int, "a format of int32 or int64"),
        (Annotated[list[str], Field(max_length=2)], "maxLength"),
        (Annotated[list[Any], Field(max_length=2)], "one type"),
        (Annotated[list, Field(max_length=2)], "one type"),
        (Any, "one type"),
    ],
)
def test_whatever_has_no_bound_is_refused(annotation: Any, missing: str) -> None:
    with pytest.raises(UnsupportedSchema, match=rf"Probe\.value.*: needs {missing}"):
        schema_of(annotation)


@pytest.mark.parametrize("annotation", [float, None])
def test_types_the_api_does_not_use_are_refused(annotation: Any) -> None:
    with pytest.raises(UnsupportedSchema, match=r"Probe\.value: has type"):
        schema_of(annotation)


@pytest.mark.parametrize("annotation", [dict[str, Any], dict])
def test_maps_of_anything_are_refused(annotation: Any) -> None:
    with pytest.raises(UnsupportedSchema, match=r"Probe\.value: allows any value"):
        schema_of(Annotated[annotation, Field(max_length=2)])


def test_lists_are_atomic_unless_they_have_keys() -> None:
    parts = Annotated[list[Part], Field(max_length=2)]
    assert schema_of(parts)["x-kubernetes-list-type"] == "atomic"
    keyed = schema_of(Annotated[parts, list_map("name", "size")])
    assert keyed["x-kubernetes-list-type"] == "map"
    assert keyed["x-kubernetes-list-map-keys"] == ["name", "size"]


@pytest.mark.parametrize("key", ["absent", "note"])
def test_a_list_key_must_be_there_in_every_item(key: str) -> None:
    class Item(ApiModel):
        note: Text | None = None

    with pytest.raises(UnsupportedSchema, match=rf"Probe\.value\[\]\.{key}: is a list key"):
        schema_of(Annotated[list[Item], Field(max_length=2), list_map(key)])


def test_descriptions_come_from_docstrings_on_one_line() -> None:
    class Described(ApiModel):
        """Of the class."""

        part: Part
        """Of the field,
        in two lines."""

    schema = structural_schema(Described)
    assert schema["description"] == "Of the class."
    assert schema["properties"]["part"]["description"] == "Of the field, in two lines."


def test_rules_stay_with_their_object() -> None:
    class Ruled(ApiModel):
        rules: ClassVar = (Rule("self.size > 0", "size must be positive"),)

        size: Int32 = 1

    validations = [{"rule": "self.size > 0", "message": "size must be positive"}]
    assert schema_of(Ruled)["x-kubernetes-validations"] == validations
    assert schema_of(Ruled | None, None)["x-kubernetes-validations"] == validations


def test_numbers_and_times_carry_their_format() -> None:
    assert schema_of(Int32)["format"] == "int32"
    assert schema_of(Int64)["format"] == "int64"
    assert schema_of(Timestamp) == {"type": "string", "format": "date-time"}
    assert schema_of(bool) == {"type": "boolean"}
