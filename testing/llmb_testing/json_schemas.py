# SPDX-License-Identifier: Apache-2.0
"""Strict JSON Schemas, which refuse fields that they do not name."""

from typing import Any


def strict(schema: Any) -> Any:
    """The schema in which objects have no fields but those that it names."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: strict(part) for key, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
        changed["additionalProperties"] = False
    return changed
