# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of coming-from-exemplar.md that say which recipes of NVIDIA's current release
llmb can run, and the reason for each that it cannot; --check: exit code 1 if they are stale.

A job is planned as `llmb-run submit` would. The recipes are in docs/nvidia/recipes.csv, which
``--pages FOLDER`` renews from a checkout of NVIDIA's exemplar-performance: the files metadata.yaml
and exemplar.yaml, of which only names and numbers are kept, with their digests.
"""

import csv
import hashlib
import io
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.entry import JobEntry
from llmb.contract.schema import ClusterConfig
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb_installer.cluster_types import all_types
from llmb_testing.generated import with_part, write

PAGE = Path(__file__).with_name("coming-from-exemplar.md")
RECIPES = Path(__file__).with_name("nvidia") / "recipes.csv"
SUITE = "exemplar.yaml"
RELEASE = "26.08.00"
BEGIN = "<!-- written by `python docs/suite.py` from docs/nvidia/recipes.csv -->\n"
END = "<!-- end of the tables -->\n"
GPUS = ("h100", "b200", "b300", "gb200", "gb300")
HEAD = ("recipe", "framework", "size", "gpu", "dtype", "gpus", "is_proxy", "suite_gpus")
#: What llmb has instead of a recipe that is no training of Megatron-Bridge.
INSTEAD = {
    "microbenchmark_nccl": "`microbench_all_reduce` and its like ([microbench.md](microbench.md))",
    "microbenchmark_cpu_overhead": "`microbench_launch` ([microbench.md](microbench.md))",
    "microbenchmark_system_info": "`llmb-run nodes check` ([nodes.md](nodes.md))",
    "microbenchmark_llmb_collector": "llmb samples each run itself ([telemetry.md](telemetry.md))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One size of a recipe with one dtype on one GPU type."""

    recipe: str
    framework: str
    size: str
    gpu: str
    dtype: str
    #: The GPU counts that NVIDIA tested.
    gpus: tuple[int, ...]
    #: The size with fewer layers, or narrower.
    is_proxy: bool
    #: The GPU count in the suite of NVIDIA's Exemplar Cloud, None if it is not in it.
    suite_gpus: int | None


def renew(folder: Path) -> None:
    """Write recipes.csv from the files of exemplar-performance in ``folder``."""
    suite_file = folder / SUITE
    files = [suite_file, *sorted(folder.rglob("metadata.yaml"))]
    suite = yaml.safe_load(suite_file.read_bytes())
    in_suite = {
        (gpu, name, dtype): suite["config"]["scale"]
        for gpu, entries in suite["workloads"].items()
        for entry in entries
        for name, values in entry.items()
        for dtype in values["dtypes"]
    }
    rows = [row for file in files[1:] for row in _rows(yaml.safe_load(file.read_bytes()), in_suite)]
    text = io.StringIO()
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        text.write(f"# exemplar-performance {RELEASE} {file.relative_to(folder)} sha256:{digest}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([HEAD, *rows])
    RECIPES.write_text(text.getvalue(), "utf-8")


def _rows(
    metadata: Mapping[str, Any], in_suite: Mapping[tuple[str, str, str], int]
) -> Iterator[tuple[str, ...]]:
    general = metadata["general"]
    recipe = f"{general['workload_type']}_{general['workload']}"
    for gpu, values in metadata["run"]["gpu_configs"].items():
        for model in values["model_configs"]:
            size, dtypes = model["model_size"], model["dtypes"]
            for dtype in [dtypes] if isinstance(dtypes, str) else dtypes:
                own = dtypes[dtype] if isinstance(dtypes, dict) else model["scales"]
                counts = own if isinstance(own, dict) else {"scales": own}
                suite = in_suite.get((gpu, f"{recipe}_{size}", dtype), "")
                for key, is_proxy in (("scales", ""), ("proxy_scales", "yes")):
                    if counts.get(key):
                        gpus = " ".join(map(str, sorted(counts[key])))
                        of_suite = "" if is_proxy else str(suite)
                        yield (
                            recipe,
                            general["framework"],
                            size,
                            gpu,
                            dtype,
                            gpus,
                            is_proxy,
                            of_suite,
                        )


def read_recipes() -> list[Recipe]:
    """Return the rows of recipes.csv."""
    lines = (line for line in RECIPES.read_text("utf-8").splitlines() if line[:1] != "#")
    return [
        Recipe(
            recipe=row["recipe"],
            framework=row["framework"],
            size=row["size"],
            gpu=row["gpu"],
            dtype=row["dtype"],
            gpus=tuple(map(int, row["gpus"].split())),
            is_proxy=bool(row["is_proxy"]),
            suite_gpus=int(row["suite_gpus"]) if row["suite_gpus"] else None,
        )
        for row in csv.DictReader(lines)
    ]


def reason_against(recipe: Recipe, gpus: int, workloads: Mapping[str, Workload]) -> str | None:
    """Return the reason why llmb cannot run the recipe on ``gpus`` GPUs, None if it can."""
    config = ClusterConfig(cluster_type="slurm", gpu_type=recipe.gpu, kind=all_types()["slurm"])
    settings = Settings(workload=recipe.recipe, model_size=recipe.size, framework="bridge")
    if recipe.recipe in INSTEAD:
        return f"instead: {INSTEAD[recipe.recipe]}"
    if recipe.is_proxy:
        return "no proxy"
    if recipe.framework != "megatron_bridge":
        return f"framework {recipe.framework}"
    entry = JobEntry(settings=settings, sweeps={"dtype": (recipe.dtype,), "scale": (gpus,)})
    plan = make_plan([entry], workloads, config)
    if not plan.faults:
        return None
    reasons = {
        "workload-unknown": "no such workload",
        "size-unknown": "no such workload",
        "dtype-unknown": "no row with this dtype",
        "not-divisible": "GPUs of a pipeline stage cannot be divided by the ways of experts",
    }
    fault = plan.faults[0]
    return reasons.get(fault.code, fault.message)


def _suite(recipes: Collection[Recipe], workloads: Mapping[str, Workload]) -> Iterator[str]:
    yield "| GPU type | rows of the suite | llmb runs | missing |"
    yield "|---|---|---|---|"
    for gpu in GPUS:
        rows = [one for one in recipes if one.gpu == gpu and one.suite_gpus is not None]
        missing = {
            f"{one.recipe} {one.size} {one.dtype}": reason
            for one in rows
            if (reason := reason_against(one, one.suite_gpus or 0, workloads)) is not None
        }
        text = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        yield f"| {gpu} | {len(rows)} | {len(rows) - len(missing)} | {text or '–'} |"


def _all(recipes: Sequence[Recipe], workloads: Mapping[str, Workload]) -> Iterator[str]:
    yield f"| recipe | size | {' | '.join(GPUS)} | what llmb cannot run |"
    yield "|" + "---|" * (len(GPUS) + 3)
    groups: dict[tuple[str, str], list[Recipe]] = {}
    for one in recipes:
        groups.setdefault((one.recipe, one.size + " proxy" * one.is_proxy), []).append(one)
    for (name, size), rows in groups.items():
        reasons: dict[str, list[str]] = {}
        cells = []
        for gpu in GPUS:
            jobs = [(one, count) for one in rows if one.gpu == gpu for count in one.gpus]
            missing = {
                f"{gpu} {one.dtype} {count}": reason
                for one, count in jobs
                if (reason := reason_against(one, count, workloads)) is not None
            }
            for place, reason in missing.items():
                reasons.setdefault(reason, []).append(place)
            cells.append(f"{len(jobs) - len(missing)} of {len(jobs)}" if jobs else "")
        runs_none = all(cell[:2] in ("", "0 ") for cell in cells)
        texts = [
            reason if runs_none else f"{reason}: {', '.join(places)}"
            for reason, places in reasons.items()
        ]
        yield f"| {name} | {size} | {' | '.join(cells)} | {'; '.join(texts)} |"


def tables() -> str:
    """Return both tables with the totals."""
    workloads = load_plugins(builtin_plugins()).workloads()
    recipes = read_recipes()
    jobs = [(one, count) for one in recipes for count in one.gpus]
    trained = [
        (one, count)
        for one, count in jobs
        if one.framework == "megatron_bridge" and one.recipe.startswith("pretrain_")
    ]
    runs = sum(reason_against(one, count, workloads) is None for one, count in trained)
    lines = [
        *_suite(recipes, workloads),
        "",
        "A job is a size with a dtype, a GPU type and a count. Of the"
        f" {len(trained)} jobs of the pretraining recipes with Megatron-Bridge, llmb plans {runs}:",
        "",
        *_all(recipes, workloads),
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Write the tables; with --check, only compare, and return 1 if they are stale."""
    if arguments[:1] == ["--pages"]:
        renew(Path(arguments[1]))
    text = with_part(PAGE.read_text("utf-8"), f"\n{tables()}\n\n", BEGIN, END)
    return write({PAGE: text}, "suite", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
