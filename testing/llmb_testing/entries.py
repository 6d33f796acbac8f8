# SPDX-License-Identifier: Apache-2.0
"""Entries of job lists, as tests write them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from llmb.contract.entry import JobEntry
from llmb.contract.settings import Settings
from llmb.contract.switches import NO_SWITCHES, Switches, given_switches

_OWN = {own.name for own in fields(JobEntry)}
_NO_PARAMS: Mapping[str, tuple[int, ...]] = {}


def job_entry(
    workload: str,
    size: str = "",
    *,
    dtypes: tuple[str, ...] = (),
    scales: tuple[int, ...] = (),
    params: Mapping[str, tuple[int, ...]] = _NO_PARAMS,
    switches: Switches = NO_SWITCHES,
    **values: Any,
) -> JobEntry:
    """Return an entry that sweeps ``dtypes``, ``scales`` and ``params``.

    ``values`` are other settings of its jobs, and fields of JobEntry.
    """
    own = {name: value for name, value in values.items() if name in _OWN}
    common: dict[str, Any] = {**given_switches(switches)}
    common |= {name: value for name, value in values.items() if name not in _OWN}
    settings = Settings(workload=workload, model_size=size, **common)
    return JobEntry(settings=settings, sweeps={"dtype": dtypes, "scale": scales, **params}, **own)
