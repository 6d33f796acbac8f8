# SPDX-License-Identifier: Apache-2.0
"""The table of the API's fields is what the official Python client (runapy) has in its models.

LLMB_TEST_ACCEPT=1 writes it.
"""

import difflib
import enum
import importlib
import inspect
import os
import re
import types
import typing
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml

from llmb_runai.runai_checks import REQUESTS, faults_of_body

ACCEPT = "LLMB_TEST_ACCEPT"
TABLE = Path(str(resources("llmb_runai"))) / "fields.yaml"
HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# The fields that Run:ai's API documents for a new workload (control plane 2.24), by type. Do not edit it:
# LLMB_TEST_ACCEPT=1 with tests/llmb/builtin/runai/test_fields.py writes it, from the models of runapy {version}.
# A list holds the words that are allowed. '!' marks a field that is required; 'string 1..63' and 'integer 0..' have
# their least and most, 'string /re/' a pattern; [T] is a list.
"""


def written(annotation: Any, found: dict[str, Any], pattern: str = "") -> str:
    """A field's type as the table has it; the types that it mentions go to ``found``."""
    origin, args = (
        typing.get_origin(annotation),
        [one for one in typing.get_args(annotation) if one is not type(None)],
    )
    if origin in (typing.Union, types.UnionType):
        parts = [written(one, found, pattern) for one in args]
        return next((one for one in parts if one.startswith("number")), parts[0])
    if origin is typing.Annotated:
        return written(annotation.__origin__, found) + limits(annotation.__metadata__, pattern)
    if origin is list:
        return f"[{written(args[0], found)}]"
    words = {str: "string", int: "integer", float: "number", bool: "boolean"}
    if annotation in words:
        return words[annotation]
    assert inspect.isclass(annotation), annotation
    if annotation.__name__ not in found:
        add(annotation, found)
    return annotation.__name__


def limits(metadata: Any, pattern: str) -> str:
    """What restricts a value, as the table has it."""
    known = dict[str, int]()
    for one in metadata:
        for part in (one, *getattr(one, "metadata", ())):
            names = ("min_length", "max_length", "ge", "le")
            known |= {
                name: getattr(part, name) for name in names if getattr(part, name, None) is not None
            }
    least, most = (
        known.get("min_length", known.get("ge", "")),
        known.get("max_length", known.get("le", "")),
    )
    return (f" {least}..{most}" if known else "") + (f" /{pattern}/" if pattern else "")


def add(model: Any, found: dict[str, Any]) -> None:
    """A model's fields, or an enumeration's words."""
    if issubclass(model, enum.Enum):
        found[model.__name__] = [one.value for one in model]
        return
    fields = found[model.__name__] = dict[str, str]()
    patterns = patterns_of(model)
    for name, field in model.model_fields.items():
        pattern = patterns.get(name, "")
        text = written(field.annotation, found, pattern)
        if not re.search(r"\.\.|/", text) and text in ("string", "integer", "number"):
            text += limits(field.metadata, pattern)
        fields[(field.alias or name) + ("!" if field.is_required() else "")] = text


def patterns_of(model: Any) -> dict[str, str]:
    """The patterns of a model's fields: its own checks have them, and nothing else does."""
    found = dict[str, str]()
    for check in model.__pydantic_decorators__.field_validators.values():
        text = re.search(r're\.match\(\s*r"(.*)", value', inspect.getsource(check.func))
        if text is not None and text[1] != ".*":
            found |= dict.fromkeys(check.info.fields, text[1])
    return found


def test_the_table_of_fields_is_the_official_client_s(models: Any) -> None:
    found: dict[str, Any] = {}
    for name in REQUESTS.values():
        add(getattr(models, name), found)
    version = importlib.import_module("runai").__version__
    text = HEAD.format(version=version)
    for name in sorted(found):
        text += yaml.safe_dump(
            {name: found[name]}, sort_keys=False, width=120, default_flow_style=None
        )
    if os.environ.get(ACCEPT):
        TABLE.write_text(text, "utf-8")
    before = TABLE.read_text("utf-8") if TABLE.exists() else ""
    changed = list(
        difflib.unified_diff(before.splitlines(), text.splitlines(), "table", "client", lineterm="")
    )
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ports": [{"container": "8080"}]}, "spec.ports[0].container must be a whole number"),
        ({"ports": [{"container": 70000}]}, "spec.ports[0].container must be at most 65535"),
        (
            {"probes": {"readiness": {"handler": {"httpGet": {"prt": 1}}}}},
            "spec.probes.readiness.handler.httpGet.prt is not a field of Run:ai's API",
        ),
        ({"tty": "yes"}, "spec.tty must be true or false"),
        ({"tty": 1}, "spec.tty must be true or false"),
        ({"backoffLimit": True}, "spec.backoffLimit must be a whole number"),
        ({"image": ""}, "spec.image is empty"),
        ({"labels": [{"name": "x" * 64}]}, "spec.labels[0].name must have at most 63 characters"),
        ({"labels": {"name": "x"}}, "spec.labels must be a list"),
        (
            {"security": {"capabilities": ["NICE"]}},
            "spec.security.capabilities[0] must be one of AUDIT_CONTROL",
        ),
        (
            {"nodeAffinityRequired": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]}},
            (
                "spec.nodeAffinityRequired.nodeSelectorTerms[0].matchExpressions[0].operator is"
                " missing"
            ),
        ),
        (
            {"compute": {"cpuMemoryRequest": "lots"}},
            "spec.compute.cpuMemoryRequest 'lots' must match ",
        ),
        ({"compute": {"cpuCoreRequest": -1}}, "spec.compute.cpuCoreRequest must be at least 0"),
        (
            {"imagePullSecrets": [{"name": "My_Key"}]},
            "spec.imagePullSecrets[0].name 'My_Key' must match ",
        ),
        ({"compute": "all"}, "spec.compute must be an object"),
    ],
)
def test_the_table_finds_what_the_models_find(
    models: Any, change: dict[str, Any], fault: str
) -> None:
    body = {"name": "a", "projectId": "1", "clusterId": "c", "spec": change}
    (found,) = faults_of_body("trainings", body)
    assert str(found).startswith(fault)
    if "is not a field" not in fault:  # the models ignore what they do not know
        with pytest.raises(pydantic.ValidationError):
            models.TrainingCreationRequest.model_validate(body)
