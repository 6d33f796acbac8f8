# SPDX-License-Identifier: Apache-2.0
"""Tests that the smallest plugin stays small and is a plugin."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pluggy

from llmb import hookspecs
from llmb.check.scaffold import scaffold
from llmb.contract.settings import Settings
from llmb.contract.spec import Workload, read_workload
from llmb.plan.configure import configure
from llmb.plan.limits import ClusterLimits
from llmb.plan.published_tables import read_published
from llmb.plan.recompute import disagreements

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "minimal-plugin"
MODULE = FOLDER / "llmb_example" / "__init__.py"


def test_it_is_one_pyproject_one_module_and_one_table() -> None:
    files = {
        str(path.relative_to(FOLDER))
        for path in FOLDER.rglob("*.*")
        if path.parent.name != "__pycache__"
    }
    assert files == {
        "README.md",
        "pyproject.toml",
        "llmb_example/__init__.py",
        "llmb_example/workload.yaml",
    }
    written = [FOLDER / name for name in files - {"README.md"}]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in written) <= 40


def test_it_is_what_plugins_new_writes() -> None:
    """Without its sample log, its tests and what they need."""
    written = scaffold("example")
    for name in ("llmb_example/__init__.py", "llmb_example/workload.yaml"):
        text = (
            (FOLDER / name)
            .read_text("utf-8")
            .replace("# SPDX-License-Identifier: Apache-2.0\n", "")
        )
        assert text == written[name].replace("sample_log: {file: sample_log.txt, size: tiny}\n", "")


def test_its_entry_point_names_the_module() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"] == {"llmb": {"example": MODULE.parent.name}}


def test_the_hook_gives_what_the_table_says() -> None:
    spec = importlib.util.spec_from_file_location("llmb_example", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    (workload,) = manager.hook.llmb_workload()
    assert workload == read_workload(MODULE.with_name("workload.yaml"))


def test_it_runs_on_h100_and_on_a_laptop() -> None:
    workload: Workload = read_workload(MODULE.with_name("workload.yaml"))
    assert workload.key == "pretrain_example"
    assert {gpu: list(workload.on(gpu)) for gpu in ("h100", "cpu", "b200")} == {
        "h100": ["1b"],
        "cpu": ["tiny"],
        "b200": [],
    }
    assert workload.sizes["1b"].scales("h100", "bf16") == [8, 16, 32, 64]


def blocks(begin: str, language: str = "yaml") -> list[str]:
    """The examples of the pages for authors in this language that begin so."""
    docs = FOLDER.parents[1] / "docs"
    page = "\n".join(
        (docs / name).read_text("utf-8") for name in ("write-a-plugin.md", "workload-yaml.md")
    )
    return [
        text
        for text in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
        if text.startswith(begin)
    ]


def test_the_plugin_by_hand_is_the_same_and_takes_its_table_into_the_wheel() -> None:
    (text,) = blocks("# pyproject.toml", "toml")
    by_hand, example = (
        tomllib.loads(text),
        tomllib.loads((FOLDER / "pyproject.toml").read_text("utf-8")),
    )
    # hatchling: setuptools leaves the YAML out
    assert by_hand["build-system"] == example["build-system"]
    assert by_hand["project"]["dependencies"] == example["project"]["dependencies"] == ["llmb"]
    assert by_hand["project"]["entry-points"] == {"llmb": {"acme": "acme_benchmarks"}}
    (module,) = blocks("# acme_benchmarks/__init__.py", "python")
    names: dict[str, object] = {"__file__": str(MODULE)}
    exec(compile(module, "page", "exec"), names)
    hook = names["llmb_workload"]
    assert callable(hook)
    assert hook() == read_workload(MODULE.with_name("workload.yaml"))


def test_the_examples_of_the_page_for_authors_are_read_and_add_up(tmp_path: Path) -> None:
    (sizes,) = blocks("sizes:\n  1b:")
    (tables,) = blocks("tables:")
    head = (
        "key: pretrain_acme\ntitle: A\ndefault_size: 1b\ndefault_dtype: fp8\npublished:"
        " published.yaml\n"
    )
    (tmp_path / "workload.yaml").write_text(head + sizes)
    (tmp_path / "published.yaml").write_text(tables)
    workload = read_workload(tmp_path / "workload.yaml")
    assert workload.sizes["1b"].nemo is not None
    assert workload.sizes["1b"].checkpoint is not None
    figures = read_published(workload)
    assert [figure.scale for figure in figures] == [8, 16]
    assert disagreements(figures, workload) == []


def test_the_examples_of_experts_gpu_types_and_flops_of_the_page(tmp_path: Path) -> None:
    (sizes,), (types,) = blocks("sizes:\n  8x7b:"), blocks("gpu_types:")
    head = "key: pretrain_acme\ntitle: A\ndefault_size: 8x7b\ndefault_dtype: bf16\n"
    (tmp_path / "workload.yaml").write_text(head + sizes + types)
    workload = read_workload(tmp_path / "workload.yaml")
    assert workload.gpu_types["mi300x"].peak_tflops == {"bf16": 1307, "fp8": 2615}
    shape = workload.sizes["8x7b"].trained_model
    limits = ClusterLimits(gpu_type="h100", rows="h100", gpus_per_node=8)
    for scale in (64, 128, 256):
        settings = Settings(
            framework="nemo", workload=workload.key, model_size="8x7b", dtype="bf16", scale=scale
        )
        job, _ = configure(settings, workload, limits)
        assert (job.trained.ep, job.trained.etp) == (8, 1)
    (module,) = blocks("from llmb.api import Flops", "python")
    names: dict[str, object] = {}
    exec(compile(module, "page", "exec"), names)
    hook = names["llmb_flops"]
    assert callable(hook)
    assert hook(shape).convention == "acme-1"
    assert hook(shape).total > 0
