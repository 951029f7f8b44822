# SPDX-License-Identifier: Apache-2.0
"""Whether a live object already holds everything that is wanted of it.

The API server fills in defaults, rewrites quantities and lets others add fields, so live and
desired objects are never equal. Comparing by containment is what keeps the operator from writing
when nothing has to change. A field that was wanted once and no longer is cannot be seen here: the
seal in the object's annotations covers that.
"""

from typing import Any

from headway_operator.quantities import parse_quantity

_MERGE_KEYS = {
    "containers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ownerReferences": "uid",
    "topologySpreadConstraints": "topologyKey",
}
_PORT_KEYS = ("containerPort", "targetPort")
_QUANTITY_FIELDS = frozenset({"limits", "requests", "sizeLimit"})


def contains(live: Any, desired: Any, field: str = "") -> bool:
    """True when `desired` is part of `live`.

    Maps are compared key by key. Lists that server-side apply merges are matched by their merge
    key, and further live items are ignored; other lists must have the same length and order.
    """
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            key in live and contains(live[key], value, _name(field, key))
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(live, list) and _list_contains(live, desired, field)
    if field in _QUANTITY_FIELDS:
        return _same_quantity(live, desired)
    return type(live) is type(desired) and bool(live == desired)


def _name(field: str, key: str) -> str:
    return field if field in _QUANTITY_FIELDS else key


def _list_contains(live: list[Any], desired: list[Any], field: str) -> bool:
    key = _merge_key(desired, field)
    if key is None:
        return len(live) == len(desired) and all(map(contains, live, desired))
    by_key = {item.get(key): item for item in live if isinstance(item, dict)}
    return all(item[key] in by_key and contains(by_key[item[key]], item) for item in desired)


def _merge_key(items: list[Any], field: str) -> str | None:
    candidates = _PORT_KEYS if field == "ports" else (_MERGE_KEYS.get(field),)
    for key in candidates:
        if key and items and all(isinstance(item, dict) and key in item for item in items):
            return key
    return None


def _same_quantity(live: Any, desired: Any) -> bool:
    if live == desired:
        return True
    left, right = parse_quantity(live), parse_quantity(desired)
    return left is not None and left == right
