# SPDX-License-Identifier: Apache-2.0
"""Turns a pydantic model into a structural schema that a Kubernetes API server accepts.

Whatever the API server would refuse, prune or estimate as unbounded is an error here that names
the field, so a careless field fails the build and not an installation.
"""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

Schema = dict[str, Any]

KEPT = (
    "description",
    "type",
    "x-kubernetes-int-or-string",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "default",
    "required",
)
CONVERTED = frozenset(
    {"additionalProperties", "const", "exclusiveMaximum", "exclusiveMinimum", "items", "properties"}
)
DROPPED = frozenset({"deprecated", "examples", "readOnly", "title", "writeOnly"})

INTEGER_FORMATS = ("int32", "int64")
NULL = {"type": "null"}


class UnsupportedSchema(ValueError):
    """A model that has no structural schema; the message starts with the field."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


def structural_schema(model: type[BaseModel]) -> Schema:
    raw = model.model_json_schema(by_alias=True, schema_generator=_SetFieldsOnly)
    return _Converter(raw.pop("$defs", {})).convert(raw, model.__name__)


class _SetFieldsOnly(GenerateJsonSchema):
    """Defaults hold what the author wrote: `Engine()` is `{}`, and the API server fills it in."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, BaseModel):
            return dft.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if isinstance(dft, list):
            return [self.encode_default(item) for item in dft]
        return super().encode_default(dft)


class _Converter:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def convert(self, node: Schema, path: str, inside: tuple[str, ...] = ()) -> Schema:
        node, inside = self._inline(node, path, inside)
        alternatives = node.pop("anyOf", None)
        if alternatives is not None:
            return self._alternatives(node, alternatives, path, inside)
        schema = _keep(node, path)
        if "type" not in schema:
            raise UnsupportedSchema(path, "needs one type")
        _constant(schema, node)
        _exclusive_bounds(schema, node)
        self._children(schema, node, path, inside)
        _check(schema, path)
        return schema

    def _inline(
        self, node: Schema, path: str, inside: tuple[str, ...]
    ) -> tuple[Schema, tuple[str, ...]]:
        node = dict(node)
        while "$ref" in node:
            name = node.pop("$ref").removeprefix("#/$defs/")
            if name in inside:
                raise UnsupportedSchema(path, f"{name} contains itself")
            inside = (*inside, name)
            node = {**self._definitions[name], **node}
        return node, inside

    def _alternatives(
        self, node: Schema, alternatives: list[Schema], path: str, inside: tuple[str, ...]
    ) -> Schema:
        present = [alternative for alternative in alternatives if alternative != NULL]
        # A null is pruned before defaults are filled in, so a default of null never was one.
        if node.get("default", ...) is None:
            del node["default"]
        if len(present) == 1:
            return self.convert({**present[0], **node}, path, inside)
        if sorted(str(alternative.get("type")) for alternative in present) == ["integer", "string"]:
            return _int_or_string(node, present, path)
        raise UnsupportedSchema(
            path, "has alternatives: use optional members and a rule that exactly one is set"
        )

    def _children(self, schema: Schema, node: Schema, path: str, inside: tuple[str, ...]) -> None:
        if "properties" in node:
            schema["properties"] = {
                name: self.convert(child, f"{path}.{name}", inside)
                for name, child in node["properties"].items()
            }
        values = node.get("additionalProperties", False)
        if values is True:
            raise UnsupportedSchema(path, "allows any value: give the map's values a type")
        if values is not False:
            if "properties" in node:
                raise UnsupportedSchema(path, "is an object and a map at once")
            schema["additionalProperties"] = self.convert(values, f"{path}[*]", inside)
        if "items" in node:
            schema["items"] = self.convert(node["items"], f"{path}[]", inside)


def _keep(node: Schema, path: str) -> Schema:
    """What carries over as it is, in the order it reads best."""
    if unknown := sorted(node.keys() - {*KEPT} - CONVERTED - DROPPED):
        raise UnsupportedSchema(path, f"a structural schema has no {', '.join(unknown)}")
    schema = {key: node[key] for key in KEPT if key in node}
    if "description" in schema:
        schema["description"] = " ".join(schema["description"].split())
    return schema


def _constant(schema: Schema, node: Schema) -> None:
    if "const" in node:
        schema["enum"] = [node["const"]]


def _exclusive_bounds(schema: Schema, node: Schema) -> None:
    """OpenAPI v3.0 spells `exclusiveMinimum: 0` as `minimum: 0, exclusiveMinimum: true`."""
    for bound in ("minimum", "maximum"):
        exclusive = f"exclusive{bound.capitalize()}"
        if exclusive in node:
            schema[bound] = node[exclusive]
            schema[exclusive] = True


def _int_or_string(node: Schema, alternatives: list[Schema], path: str) -> Schema:
    merged: Schema = {"x-kubernetes-int-or-string": True}
    for alternative in alternatives:
        merged |= {key: value for key, value in alternative.items() if key != "type"}
    return _keep(merged | node, path)


def _check(schema: Schema, path: str) -> None:
    match schema["type"]:
        case "array":
            _check_list(schema, path)
        case "object":
            if "additionalProperties" in schema and "maxProperties" not in schema:
                raise UnsupportedSchema(path, "needs maxProperties")
        case "string":
            if not schema.keys() & {"enum", "format", "maxLength"}:
                raise UnsupportedSchema(path, "needs maxLength")
        case "integer":
            if schema.get("format") not in INTEGER_FORMATS:
                raise UnsupportedSchema(path, f"needs a format of {' or '.join(INTEGER_FORMATS)}")
        case "boolean":
            pass
        case other:
            raise UnsupportedSchema(path, f"has type {other}, which the API does not use")


def _check_list(schema: Schema, path: str) -> None:
    if "items" not in schema:
        raise UnsupportedSchema(path, "needs one type for its items")
    if "maxItems" not in schema:
        raise UnsupportedSchema(path, "needs maxItems")
    items = cast(Schema, schema["items"])
    if schema.setdefault("x-kubernetes-list-type", "atomic") != "map":
        return
    for key in schema["x-kubernetes-list-map-keys"]:
        member = items.get("properties", {}).get(key)
        if member is None or (key not in items.get("required", ()) and "default" not in member):
            raise UnsupportedSchema(f"{path}[].{key}", "is a list key: require it or default it")
