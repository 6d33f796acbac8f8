# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of a run in the name of its experiment, as every release of NVIDIA's launchers writes it."""

import re
from collections.abc import Mapping
from typing import Any

from llmb.results.description import NOTHING, SPLIT, Description
from llmb.text.names import squash, squash_workload
from llmb.workload.bridge import BRIDGE
from llmb.workload.parameters import in_name
from llmb.workload.spec import Workload

# Dtypes that name the scaling of fp8 are separate: fp8_cs (current scaling) is not the fp8 of older releases.
ALL_DTYPES = ("bf16", "fp8", "fp16", "fp32", "mxfp8", "nvfp4", "fp8_cs", "fp8_mx", "fp8_sc")
_NUMBERED = re.compile(r"(?<![a-z])(gpus|tp|pp|cp|vp|ep|etp|mbs|gbs|layers)(\d{1,9})")
_PROFILED = re.compile(r"(?:^|_)(?:nsys|profile)(?:_|$)")
_TRACED = re.compile(r"(?:^|_)nccltrace(?:_|$)")
_LOADS = re.compile(r"(?:^|_)load(?:_|$)")
_BRIDGE = re.compile(r"(?:^|_)bridge(\d[\d.]*)(?:_|$)")
_CURRENT = re.compile(r"(?:^|_)fp8current(?:_|$)")


def dtypes_of(workloads: Mapping[str, Workload]) -> re.Pattern[str]:
    """A pattern that splits a name at its first dtype."""
    rows = (row for workload in workloads.values() for size in workload.sizes.values() for row in size.rows)
    words = {*ALL_DTYPES, *(dtype for row in rows for dtype in row.dtype)}
    longest = sorted(words, key=lambda word: (-len(word), word))  # fp8_cs before fp8
    return re.compile(rf"(.+?)_({'|'.join(map(re.escape, longest))})((?:_.*)?)", re.DOTALL | re.IGNORECASE)


def of_name(name: str, workloads: Mapping[str, Workload], dtypes: re.Pattern[str]) -> Description:
    """The settings in an experiment's name; none where it does not begin with a workload."""
    parts = dtypes.fullmatch(name)
    key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if key is None:  # launchers write an account before it
        parts = dtypes.fullmatch(re.sub(r"^.*?(?=pretrain)", "", name, flags=re.IGNORECASE))
        key, size = _workload_and_size(parts[1], workloads) if parts else (None, None)
    if parts is None or key is None or size is None:
        return NOTHING
    parameters, tail = in_name(parts[3], workloads[key].parameters_of(size))
    dtype, tail = parts[2].lower(), tail.lower()
    numbers = {word: int(number) for word, number in _NUMBERED.findall(tail)}
    split: dict[str, Any] = {name: numbers.get(name) for name in SPLIT}
    bare = re.match(r"_([1-9]\d{0,4})(?:_|$)", tail)  # the older releases' `_fp8_256`
    return Description(
        workload=key,
        size=size,
        dtype=dtype,
        gpus=numbers.get("gpus") or (int(bare[1]) if bare else None) or None,
        gbs=numbers.get("gbs") or None,
        **split,
        layers=numbers.get("layers") or None,
        profiled=bool(_PROFILED.search(tail)) or None,
        traced=bool(_TRACED.search(tail)) or None,
        loads=bool(_LOADS.search(tail)) or None,
        fp8="current" if _CURRENT.search(tail) else None,
        framework=BRIDGE if (bridge := _BRIDGE.search(tail)) else None,
        release=bridge[1] if bridge else None,
        parameters=parameters or None,
    )


def _workload_and_size(head: str, workloads: Mapping[str, Workload]) -> tuple[str, str] | tuple[None, None]:
    """Workload and size in any spelling that is accepted; nothing where several fit.

    Releases from 25.12 omit the minor version, as in ``pretrain_llama3_70b``.
    """
    wanted = squash_workload(head)
    for name in (str, lambda key: re.sub(r"\.\d+$", "", key)):
        fits = [
            (key, size)
            for key, workload in workloads.items()
            if wanted.startswith(short := squash_workload(name(key)))
            for size in workload.sizes
            if wanted == short + squash(size)
        ]
        if fits:
            return fits[0] if len(fits) == 1 else (None, None)
    return None, None
