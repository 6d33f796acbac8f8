# SPDX-License-Identifier: Apache-2.0
"""Reads what NVIDIA's launch scripts set for a row, for releases whose library lacks it.

Megatron-Bridge 0.4 and 0.5 have general recipes, and only the scripts know how each row differs.
Beside the bridge.yaml of a workload, ``bridge-RELEASE/MODEL.json`` has the values of every row.
tests/real_bridge/freeze.py writes these files.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from llmb.contract.spec import Workload
from llmb.core.values import dataclass
from llmb.errors import UsageError

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """The settings of one row but its layout, its batch and what belongs to a job."""

    #: The library's general recipe, ``module:name``.
    base: str
    #: Values by dotted path, as a recipe has them. A path comes before its parts.
    values: Values
    #: Arguments of the synthetic samples' loader.
    loader: Values
    #: The variables of the ranks.
    environment: Mapping[str, str]


def script_settings(
    workload: Workload, release: str, model: str, *, gpu: str, dtype: str, count: int
) -> ScriptSettings | None:
    """Return the settings of NVIDIA's row for ``count`` GPUs, None if ``release`` needs none.

    Raises UsageError if the files of the release lack the row.
    """
    if not isinstance(workload.bridge, Path):
        return None
    folder = workload.bridge.with_name(f"bridge-{release}")
    if not folder.is_dir():
        return None
    file = folder / f"{model}.json"
    content = _read(file) if file.is_file() else {"rows": {}}
    row = content["rows"].get(f"{gpu} {dtype} {count}")
    if row is None:
        raise UsageError(
            f"{file} has no settings for {dtype} on {count} GPUs of type {gpu}",
            hint="install the workload's plugin again, or choose another --release",
            code="row-missing",
            value=f"{gpu} {dtype} {count}",
        )
    return ScriptSettings(
        base=content["base"],
        values=dict(sorted({**content["set"], **row["set"]}.items())),
        loader={**content["loader"], **row["loader"]},
        environment={**content["environment"], **row["environment"]},
    )


@cache
def _read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
