# SPDX-License-Identifier: Apache-2.0
"""Acceptance plans: YAML files with phases and the jobs of each, ours and those of plugins."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from llmb import api

#: Each entry point of this group names a package with plans, one in each YAML file.
GROUP = "llmb_accept.plans"
ALL = "all"
CHECKS = ("quick", "full")
SPREAD = 0.035
_LARGEST_RATIO = 2  # of a reference: above, somebody wrote percent
_CORRECT = "correct it: the file is one mapping, and each key is there once"
_NAME = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_HERE = Path(__file__).parent / "plans"
_PLAN_KEYS = ("name", "title", "statement", "one_release", "phases")
_PHASE_KEYS = ("name", "check", "nodes", "attempts", "jobs")
_ROW_KEYS = (
    *("job", "dtype", "scale", "gpu_types", "task"),
    *("minimum", "ratio_above", "sustained", "spread"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A job of a phase, which runs on each group of nodes, and what it must reach."""

    #: Names the row in sessions and on the certificate.
    name: str
    #: A section of a job list: ``microbench_gemm``.
    job: str
    dtype: str | None = None
    #: In GPUs, the largest that fits is used. Empty: all GPUs of the nodes.
    scales: tuple[int, ...] = ()
    #: The GPU types that it is for, empty for all.
    gpu_types: tuple[str, ...] = ()
    #: Further keys of the section.
    task: Mapping[str, Any] = field(default_factory=dict)
    #: The least value of a metric, in its unit.
    minimum: Mapping[str, float] = field(default_factory=dict)
    #: The ratio to a published figure that it must exceed. Without such a figure it does not pass.
    ratio_above: float | None = None
    #: The run must also have held out: a verdict of its own on drift, time in steps and heat.
    sustained: bool = False
    #: The share of the median of all groups that a healthy group may be below it.
    spread: float = SPREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A step of a plan. Nodes that fail it are not in the next one."""

    name: str
    #: ``quick`` or ``full``: it is a check of nodes, without rows.
    check: str | None = None
    #: The nodes of a job, None for all that are left.
    nodes: int | None = None
    #: How often a job of all nodes is tried.
    attempts: int = 1
    rows: tuple[PlanRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptancePlan:
    """A plan as read."""

    name: str
    title: str
    #: What the certificate quotes, with its source.
    statement: str = ""
    #: All runs must have the same release of llmb and of each workload.
    one_release: bool = False
    phases: tuple[Phase, ...]


def shipped() -> dict[str, Path]:
    """Return the plans that are installed by name: llmb's, then those of other distributions."""
    folders = [_HERE]
    for entry in entry_points(group=GROUP):
        spec = importlib.util.find_spec(entry.value)
        folders += map(Path, (spec and spec.submodule_search_locations) or ())
    plans: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            plans.setdefault(path.stem, path)
    return plans


def find_plan(name: str) -> Path:
    """Return the file of a plan: the path of a YAML file, or the name of an installed plan.

    Raises UsageError.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        if Path(name).is_file():
            return Path(name)
        message = f"there is no plan '{name}'"
    elif name in (plans := shipped()):
        return plans[name]
    else:
        message = f"there is no plan '{name}': installed are {', '.join(plans)}"
    raise api.UsageError(
        message,
        hint="name a YAML file, or a plan of llmb-run accept plans",
        code="plan-missing",
        key="PLAN",
        value=name,
    )


def read_plan(text: str, place: str) -> AcceptancePlan:
    """Return the plan in ``text``, read from ``place``. Raises UsageError with place and fix."""
    return _Reader(place).plan(text)


def plan_fault(place: str, key: str, problem: str, hint: str) -> api.UsageError:
    """Return the error for what is at ``key`` of a plan, which was read from ``place``."""
    where = f"{place}: {key}" if key else place
    return api.UsageError(
        f"{where} {problem}", hint=hint, code="plan-invalid", key=key, value=place
    )


@dataclass(frozen=True)
class _Reader:
    """Reads the parts of a plan, each from the mapping at its key."""

    place: str

    def plan(self, text: str) -> AcceptancePlan:
        try:
            data = api.parse_yaml(text, self.place)
        except api.UsageError as error:
            raise api.UsageError(
                error.message, hint=error.hint or _CORRECT, code="plan-invalid", value=self.place
            ) from error
        values = self.keys("", data, _PLAN_KEYS, required=("title", "phases"))
        phases = tuple(self.phases(values["phases"]))
        if not phases:
            raise self.fault("phases", "is empty", "name the phases of the plan")
        return AcceptancePlan(
            name=self.name("name", values.get("name", Path(self.place).stem)),
            title=self.text("title", values["title"]),
            statement=" ".join(self.text("statement", values.get("statement", "")).split()),
            one_release=self.typed("one_release", values.get("one_release", False), bool),
            phases=phases,
        )

    def phases(self, data: Any) -> Iterator[Phase]:
        names: set[str] = set()
        for number, section in enumerate(self.typed("phases", data, list)):
            key = f"phases[{number}]"
            values = self.keys(key, section, _PHASE_KEYS, required=("name",))
            name = self.name(f"{key}.name", values["name"])
            if name in names:
                raise self.fault(f"{key}.name", f"'{name}' is there twice", "name each once")
            names.add(name)
            yield self.phase(key, name, values)

    def phase(self, key: str, name: str, values: Mapping[str, Any]) -> Phase:
        if ("check" in values) == ("jobs" in values):
            raise self.fault(key, "has neither or both", "give it check: or jobs:")
        if "check" in values:
            check = values["check"]
            if check not in CHECKS or len(values) > 2:
                hint = f"write check: {' or '.join(CHECKS)}, and no other key"
                raise self.fault(f"{key}.check", f"is {check!r}", hint)
            return Phase(name=name, check=check)
        nodes = values.get("nodes", ALL)
        rows = tuple(
            self.row(f"{key}.jobs[{number}]", job, nodes)
            for number, job in enumerate(self.typed(f"{key}.jobs", values["jobs"], list))
        )
        attempts = self.number(f"{key}.attempts", values.get("attempts", 1))
        if nodes != ALL and attempts != 1:
            hint = "omit it: a group that fails is always measured again"
            raise self.fault(f"{key}.attempts", "is for jobs of all nodes", hint)
        if not rows:
            raise self.fault(f"{key}.jobs", "is empty", "name the jobs of the phase")
        return Phase(
            name=name,
            nodes=None if nodes == ALL else self.number(f"{key}.nodes", nodes),
            attempts=attempts,
            rows=_numbered(rows),
        )

    def row(self, key: str, data: Any, nodes: Any) -> PlanRow:
        values = self.keys(key, data, _ROW_KEYS, required=("job",))
        job = self.text(f"{key}.job", values["job"])
        scale = values.get("scale", [])
        scales = [self.number(f"{key}.scale", gpus) for gpus in _listed(scale)]
        if scales and nodes != ALL:
            hint = "omit it: a job has all GPUs of its nodes"
            raise self.fault(f"{key}.scale", "is for jobs of all nodes", hint)
        task = self.typed(f"{key}.task", values.get("task", {}), dict)
        for reserved in {"dtypes", "scales", "nodelist", "repeats", "tasks"} & task.keys():
            hint = "the plan's own keys say that"
            raise self.fault(f"{key}.task.{reserved}", "is not a key here", hint)
        minimum = self.typed(f"{key}.minimum", values.get("minimum", {}), dict)
        ratio = values.get("ratio_above")
        dtype = None if values.get("dtype") is None else self.text(f"{key}.dtype", values["dtype"])
        return PlanRow(
            name="-".join(filter(None, (job.replace(".", "_"), dtype))),
            job=job,
            dtype=dtype,
            scales=tuple(sorted(scales)),
            gpu_types=tuple(map(str, _listed(values.get("gpu_types", [])))),
            task=task,
            minimum={
                name: self.typed(f"{key}.minimum.{name}", value, (int, float))
                for name, value in minimum.items()
            },
            ratio_above=None if ratio is None else self.ratio(f"{key}.ratio_above", ratio),
            sustained=self.typed(f"{key}.sustained", values.get("sustained", False), bool),
            spread=self.share(f"{key}.spread", values.get("spread", SPREAD)),
        )

    def ratio(self, key: str, value: Any) -> float:
        ratio: float = self.typed(key, value, (int, float))
        if not 0 <= ratio <= _LARGEST_RATIO:
            hint = "write a fraction of the reference: 0.95 is 95 %"
            raise self.fault(key, f"is {ratio!r}", hint)
        return ratio

    def share(self, key: str, value: Any) -> float:
        share: float = self.typed(key, value, (int, float))
        if not 0 <= share < 1:
            raise self.fault(key, f"is {share!r}", "write a fraction of the median: 0.05 is 5 %")
        return share

    def keys(
        self, key: str, data: Any, allowed: tuple[str, ...], *, required: tuple[str, ...]
    ) -> Mapping[str, Any]:
        values: Mapping[str, Any] = self.typed(key, data, dict)
        hint = f"its keys are {', '.join(allowed)}"
        for name in values:
            if name not in allowed:
                raise self.fault(f"{key}.{name}".strip("."), "is not a key here", hint)
        for name in required:
            if name not in values:
                raise self.fault(f"{key}.{name}".strip("."), "is missing", hint)
        return values

    def typed(self, key: str, value: Any, kinds: type | tuple[type, ...]) -> Any:
        is_flag = isinstance(value, bool) and kinds is not bool
        if not isinstance(value, kinds) or is_flag:
            words = {dict: "a mapping", list: "a list", bool: "true or false", str: "a text"}
            kind = words[kinds] if isinstance(kinds, type) and kinds in words else "a number"
            raise self.fault(key, f"is {value!r}", f"write {kind}")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.fault(key, f"is {value!r}", "write a number")
        return value

    def text(self, key: str, value: Any) -> str:
        text: str = self.typed(key, value, str)
        return text

    def name(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise self.fault(
                key, f"is {value!r}", "begin with a letter; use letters, digits, - and _"
            )
        return value

    def number(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.fault(key, f"is {value!r}", "write a whole number from 1 on")
        return value

    def fault(self, key: str, problem: str, hint: str) -> api.UsageError:
        return plan_fault(self.place, key, problem, hint)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _numbered(rows: tuple[PlanRow, ...]) -> tuple[PlanRow, ...]:
    """Give rows of one name a number each."""
    from dataclasses import replace

    names = [row.name for row in rows]
    return tuple(
        replace(row, name=f"{row.name}-{names[: index + 1].count(row.name)}")
        if names.count(row.name) > 1
        else row
        for index, row in enumerate(rows)
    )
