# SPDX-License-Identifier: Apache-2.0
"""A framework of a plugin: its workloads are listed, planned, installed, launched and checked as
those of llmb's frameworks.
"""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.api import Image, Site
from llmb.builtin.own_types import SLURM
from llmb.errors import KeyFaultError
from llmb.measure.describe_log import dtypes_of, of_name
from llmb.plugins.loaded import Plugins
from llmb_installer.answers.schema import check_framework

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., str]
Load = Callable[[], Plugins]
Wording = Callable[..., None]

TITAN = """
from dataclasses import dataclass
from typing import Literal
from llmb.api import Command, Framework, Image, Needs, Program, hookimpl

@dataclass(frozen=True)
class Recipe:
    flavor: Literal["debug", "1B"]
    compile: bool = True

@dataclass(frozen=True)
class Settings:
    rails: int = 1

@hookimpl
def llmb_settings():
    return Settings

def needs(workload, site):
    return Needs(needs=(Image(reference=workload.image),))

def launch(workload, job, site):
    if job.max_steps == 13:
        raise ValueError("13 steps")
    if job.max_steps == 14:
        return "14 steps"
    recipe = workload.sizes[job.model_size].recipe
    args = (recipe.flavor, str(recipe.compile), f"gbs={job.trained.gbs}", f"rails={site.own(Settings).rails}")
    return Command(program=Program(module="titan.train"), args=args)

@hookimpl
def llmb_frameworks():
    return [Framework(name="titan", title="Titan", dtypes=("bf16", "fp8"), recipe=Recipe, needs=needs, launch=launch)]
"""
ROWS = """\
key: pretrain_acme
title: Acme
framework: titan
image: registry.example.com/titan:1.2
sizes:
  1b:
    model: {architecture: llama, layers: 16, hidden: 2048, ffn: 8192, heads: 32, kv_groups: 8, gated: true,
            vocab: 128256, seq_length: 4096}
    recipe: {flavor: 1B}
    rows: [{gpu: h100, dtype: [bf16, fp8], scales: 8..64, mbs: 1, gbs: 16N}]
"""


@pytest.fixture
def benchmarks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of benchmarks in YAML alone."""
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    monkeypatch.setenv("LLMB_PLUGINS", str(folder))
    return folder


@pytest.fixture
def titan(install: Install, benchmarks: Path) -> str:
    """A plugin with a framework, and a benchmark that it trains."""
    (benchmarks / "acme.yaml").write_text(ROWS)
    return install("titan", TITAN)


DRY = ("submit", "-w", "pretrain_acme", "-s", "1b", "--scale", "8", "--dry-run", "--format", "json")


def job(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (planned,) = json.loads(done.stdout)["jobs"]
    return dict(planned)


def test_a_job_of_the_framework_is_planned(
    titan: str, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    planned = job(llmb_here(*DRY, "--install", cluster()))
    assert (planned["framework"], planned["dtype"]) == ("titan", "bf16")
    assert planned["image"] == "registry.example.com/titan:1.2"
    assert "titan.train 1B True gbs=128 rails=1" in planned["script"]
    named = job(llmb_here(*DRY, "--framework", "titan", "--install", cluster("slurm", name="b")))
    assert named["framework"] == "titan"


def test_a_list_selects_it(
    titan: str, llmb_here: Command, cluster: Callable[..., Path], tmp_path: Path
) -> None:
    listed = tmp_path / "jobs.yaml"
    listed.write_text(
        "pretrain_acme_1b:\n  scales: 16\n  tasks:\n    - {framework: titan, dtypes: fp8}\n"
    )
    words = ("submit-all", listed, "--dry-run", "--format", "json", "--install", cluster())
    planned = job(llmb_here(*words))
    assert (planned["framework"], planned["dtype"], planned["scale"]) == ("titan", "fp8", 16)


def test_list_shows_it(titan: str, llmb_here: Command) -> None:
    done = llmb_here("list", "-w", "pretrain_acme", "--framework", "titan", "--format", "json")
    rows = json.loads(done.stdout)
    assert [(row["framework"], row["dtype"]) for row in rows] == [("titan", ["bf16", "fp8"])]
    done = llmb_here("list", "--framework", "titan", "--format", "json")
    assert [row["workload"] for row in json.loads(done.stdout)] == ["pretrain_acme"]
    done = llmb_here("plugins", "list", "--format", "json")
    kinds = {row["plugin"]: row["kind"] for row in json.loads(done.stdout)}
    assert kinds[titan] == "framework"


def test_its_needs_are_installed(titan: str, load: Load) -> None:
    plugins = load()
    site = Site(
        cluster_type="slurm",
        gpu_type="h100",
        gpus_per_node=8,
        install=Path("/install"),
        traits=SLURM.traits_of(None),
    )
    needs = plugins.setup(plugins.workloads()["pretrain_acme"], site)
    assert needs is not None
    assert needs.needs == (Image(reference="registry.example.com/titan:1.2"),)


@pytest.mark.parametrize(
    "words",
    [
        ("-w", "pretrain_acme", "-s", "1b", "--framework", "bridge"),
        ("-w", "pretrain_acme", "-s", "1b", "--framework", "nemo"),
        ("-w", "pretrain_acme", "-s", "1b", "--framework", "titn"),
        ("-w", "pretrain_acme", "-s", "1b", "--release", "26.08"),
        ("-w", "pretrain_acme", "-s", "1b", "--dtype", "fp32"),
        ("-w", "llama3.1", "-s", "8b", "--framework", "titan"),
    ],
    ids=("bridge", "nemo", "unknown", "release", "dtype", "other"),
)
def test_what_it_does_not_train(
    words: tuple[str, ...],
    titan: str,
    llmb_here: Command,
    cluster: Callable[..., Path],
    wording: Wording,
) -> None:
    done = llmb_here("submit", *words, "--scale", "8", "--dry-run", "--install", cluster())
    assert done.returncode == 2
    wording("frameworks", done.stderr)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("flavor: 1B", "flavour: 1B"),
        ("flavor: 1B", "flavor: 70B"),
        ("framework: titan", "framework: titam"),
        ("framework: titan", "framework: torch"),
        ("    recipe: {flavor: 1B}\n", ""),
    ],
    ids=("key", "value", "framework", "no-recipe", "missing"),
)
def test_a_wrong_section_has_its_place(
    old: str, new: str, titan: str, benchmarks: Path, llmb_here: Command, wording: Wording
) -> None:
    (benchmarks / "acme.yaml").write_text(ROWS.replace(old, new))
    done = llmb_here("list", "-w", "pretrain_acme")
    assert done.returncode == 2
    wording("frameworks", done.stderr)


@pytest.mark.parametrize("steps", [13, 14])
def test_its_failure_names_its_plugin(
    steps: int,
    titan: str,
    llmb_here: Command,
    cluster: Callable[..., Path],
) -> None:
    done = llmb_here(*DRY, "--set", f"max_steps={steps}", "--install", cluster())
    assert done.returncode == 1
    assert f"plugin {titan}" in done.stderr
    assert f"{steps} steps" in done.stderr


def test_the_checks_try_its_rows(titan: str, benchmarks: Path, llmb_here: Command) -> None:
    done = llmb_here("plugins", "check", "-w", "pretrain_acme")
    assert (done.returncode, done.stdout) == (0, "1 plugin checked, no faults\n")
    (benchmarks / "acme.yaml").write_text(ROWS.replace("[bf16, fp8]", "[bf16, fp16]"))
    done = llmb_here("plugins", "check", "-w", "pretrain_acme")
    assert done.returncode == 1
    assert "sizes.1b.rows.0: Titan does not support dtype 'fp16'" in done.stdout + done.stderr


def test_of_two_with_one_name_none_is_used(
    titan: str, install: Install, load: Load, llmb_here: Command
) -> None:
    install("titan2", TITAN)
    install("nemo2", TITAN.replace('name="titan"', 'name="nemo"'))
    plugins = load()
    assert "titan" not in plugins.frameworks
    assert plugins.frameworks["nemo"].title == "NeMo"
    assert "pretrain_acme" not in plugins.workloads()
    codes = {problem.source: problem.code for problem in plugins.problems}
    assert {codes[source] for source in (titan, "titan2:entry", "nemo2:entry")} == {
        "name-duplicate"
    }


def test_a_recipe_may_be_written_in_python(titan: str, load: Load) -> None:
    plugins = load()
    workload = plugins.workloads()["pretrain_acme"]
    recipe = replace(workload.sizes["1b"].recipe, compile=False)
    sizes = {"1b": replace(workload.sizes["1b"], recipe=recipe)}
    again = replace(workload, sizes=sizes).known_to(plugins.frameworks)
    assert again.sizes["1b"].recipe.compile is False


def test_the_torch_program_trains_a_workload_that_names_it(
    benchmarks: Path, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    text = ROWS.replace("titan\n", "torch\n").replace("    recipe: {flavor: 1B}\n", "")
    (benchmarks / "acme.yaml").write_text(text.replace("[bf16, fp8]", "bf16"))
    planned = job(
        llmb_here(*DRY, "--image", "registry.example.com/torch:2", "--install", cluster())
    )
    assert planned["framework"] == "torch"
    assert "torch_pretrain" in planned["script"]


BRINGS = """
from llmb.api import BatchRule, Command, Framework, Image, ImageRelease, Needs, Program, Row, Scales, hookimpl

RELEASES = {
    name: ImageRelease(image=f"registry.example.com/titan:{name}", libraries={"titan": name})
    for name in ("2.1", "2.0")
}

def row(dtypes, scales):
    return Row(gpu=("h100",), dtype=dtypes, scales=Scales(scales), tp=2, mbs=1, gbs=BatchRule.parse("4N"))

def rows(workload):
    if workload.key != "pretrain_llama3.1":
        return {}
    return {"8b": {"2.1": (row(("bf16", "fp8_row"), (8, 16)),), "2.0": (row(("bf16",), (8,)),)}}

def image_release(image):
    return image.removesuffix(".sqsh").partition("titan-")[2] or None

def needs(workload, site):
    return Needs(needs=(Image(reference=RELEASES["2.1"].image),))

def launch(workload, job, site):
    return Command(program=Program(module="titan.train"), args=(job.release, job.dtype))

@hookimpl
def llmb_frameworks():
    return [Framework(name="titan", title="Titan", library="titan", publisher="Acme", dtypes=("bf16", "fp8_row"),
                      spellings={"fp8": ("fp8_row",)}, releases=RELEASES, rows=rows, any_scale=True,
                      needs=needs, launch=launch, image_release=image_release)]
"""
LLAMA = ("submit", "-w", "llama3.1", "-s", "8b", "--dry-run", "--format", "json", "--install")


@pytest.fixture
def brings(install: Install) -> str:
    """A plugin whose framework brings rows for a workload of llmb."""
    return install("brings", BRINGS)


@pytest.mark.parametrize(
    ("words", "release", "dtype"),
    [
        (("--framework", "titan"), "2.1", "fp8_row"),
        (("--framework", "titan", "--dtype", "bf16"), "2.1", "bf16"),
        (("--framework", "titan", "--dtype", "fp8"), "2.1", "fp8_row"),
        (("--release", "2.0", "--dtype", "bf16"), "2.0", "bf16"),
        (("--image", "registry.example.com/titan:2.0", "--dtype", "bf16"), "2.0", "bf16"),
    ],
    ids=("default", "dtype", "word", "release", "image"),
)
def test_a_framework_brings_rows_and_releases(
    words: tuple[str, ...],
    release: str,
    dtype: str,
    brings: str,
    llmb_here: Command,
    cluster: Callable[..., Path],
) -> None:
    planned = job(llmb_here(*LLAMA, cluster(), *words, "--scale", "8"))
    assert (planned["framework"], planned["release"], planned["dtype"]) == ("titan", release, dtype)
    assert planned["image"] == f"registry.example.com/titan:{release}"
    assert (planned["tp"], planned["gbs"]) == (2, 32)
    assert f"titan.train {release} {dtype}" in planned["script"]
    assert f"_titan{release}" in planned["experiment_name"]


def test_the_name_of_an_image_tells_its_release(
    brings: str, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    install, image = cluster(), "mirror.example.com/site:titan-2.0"
    words = ("--image", image, "--dtype", "bf16", "--scale", "8")
    planned = job(llmb_here(*LLAMA, install, *words))
    assert (planned["framework"], planned["release"]) == ("titan", "2.0")
    assert planned["image"] == image
    done = llmb_here(*LLAMA, install, "--framework", "titan", "--release", "2.1", *words)
    assert done.returncode == 2
    assert f"{image} is not the image of release 2.1 of Titan" in done.stderr
    done = llmb_here(*LLAMA, install, "--framework", "nemo", *words)
    assert done.returncode == 2
    assert f"{image} is for Titan, and this job trains with NeMo" in done.stderr


def test_images_in_the_install_select_the_framework_and_its_release(
    brings: str, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    install = cluster()
    (install / "images").mkdir()
    (install / "images/mirror.example.com+site+titan-2.0.sqsh").touch()
    words = ("--dtype", "bf16", "--scale", "8")
    planned = job(llmb_here(*LLAMA, install, *words))
    assert (planned["framework"], planned["release"]) == ("titan", "2.0")


def test_a_name_tells_the_framework_and_its_release(brings: str, load: Load) -> None:
    workloads = load().workloads()
    name = "pretrain_llama3.1_8b_bf16_gpus8_tp2_pp1_cp1_vpnone_mbs1_gbs32_titan2.0"
    settings = of_name(name, workloads, dtypes_of(workloads))
    assert (settings.framework, settings.release) == ("titan", "2.0")


def test_llmbs_choice_stays_and_names_the_other(
    brings: str, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    assert job(llmb_here(*LLAMA, cluster(), "--scale", "8"))["framework"] == "nemo"


@pytest.mark.parametrize(
    ("chosen", "images"),
    [
        ("auto", ["nvcr.io/nvidia/nemo:25.04.01"]),
        ("titan", ["registry.example.com/titan:2.1"]),
        ("both", ["nvcr.io/nvidia/nemo:25.04.01", "nvidia", "registry.example.com/titan:2.1"]),
    ],
)
def test_an_install_has_the_selected_frameworks(
    chosen: str, images: list[str], brings: str, load: Load
) -> None:
    plugins = load()
    site = Site(
        cluster_type="slurm",
        gpu_type="h100",
        gpus_per_node=8,
        install=Path("/install"),
        traits=SLURM.traits_of(None),
        container=True,
        settings={"framework": chosen},
    )
    needs = plugins.setup(plugins.workloads()["pretrain_llama3.1"], site)
    assert needs is not None
    found = [need.reference for need in needs.needs if isinstance(need, Image)]
    assert len(found) == len(images)
    assert (found[0], found[-1]) == (images[0], images[-1])
    check_framework(chosen)


def test_an_image_with_another_library_is_refused(
    brings: str, llmb_here: Command, cluster: Callable[..., Path], wording: Wording
) -> None:
    install = cluster()
    image = install / "images/titan+2.1.sqsh.json"
    image.parent.mkdir(parents=True)
    image.write_text(json.dumps({"contents": {"titan": "2.0.3"}}))
    done = llmb_here(*LLAMA, install, "--framework", "titan", "--scale", "8")
    assert done.returncode == 2
    wording("frameworks", done.stderr)


def test_results_have_the_framework(
    titan: str, make_install: Any, load: Load, llmb_here: Command
) -> None:
    """Its runs are read as NeMo 2's, since its plugin declares no format of logs."""
    made = replace(make_install(), workloads=load().workloads())
    made.measured("a1", 2.0, "acme_1b", "bf16", 16)
    words = ("results", "--format", "json", "--install", made.folder)
    (result,) = json.loads(llmb_here(*words).stdout)["results"]
    assert (result["framework"], result["status"]) == ("titan", "Success")
    assert result["metrics"]["step_time"]["mean"] == 2.0
    shown = llmb_here("explain", "a1", "--install", made.folder).stdout
    assert "batch 256" in shown


def test_a_framework_has_its_own_default_window(
    install: Install, benchmarks: Path, make_install: Any, load: Load, llmb_here: Command
) -> None:
    (benchmarks / "acme.yaml").write_text(ROWS)
    install("titan", TITAN.replace("recipe=Recipe", "recipe=Recipe, window=(0.5, 0.75)"))
    made = replace(make_install(), workloads=load().workloads())
    log = made.measured("a1", 2.0, "acme_1b", "bf16", 16).log
    words = ("results", "--format", "json", "--install", made.folder)
    (result,) = json.loads(llmb_here(*words).stdout)["results"]
    copy = benchmarks.parent / "log-pretrain_acme_1b_bf16_gpus16.out"
    copy.write_text(log.read_text())
    parsed = llmb_here("parse", copy, "--framework", "titan", "--format", "json")
    (alone,) = json.loads(parsed.stdout)["results"]
    for found in (result, alone):
        assert found["window"] == [25, 38]
        assert found["metrics"]["step_time"]["n"] == 14


@pytest.mark.parametrize("window", ["(0.5, 0.4)", "(-1, 0.4)", "(0.5, 44)"])
def test_a_wrong_window_is_refused(window: str, install: Install, load: Load) -> None:
    source = install("titan", TITAN.replace("recipe=Recipe", f"recipe=Recipe, window={window}"))
    plugins = load()
    assert "titan" not in plugins.frameworks
    (reason,) = (problem.reason for problem in plugins.problems if problem.source == source)
    assert "window: must be two ascending parts of the steps, from 0 to 1" in reason


def test_an_unknown_framework_is_no_answer(brings: str) -> None:
    with pytest.raises(KeyFaultError) as caught:
        check_framework("titam")
    assert caught.value.hint == "did you mean 'titan'?"


def test_rows_of_all_frameworks_are_listed(brings: str, llmb_here: Command) -> None:
    done = llmb_here("list", "-w", "llama3.1_8b", "--gpu-type", "h100", "--format", "json")
    listed = {(row["framework"], row["release"]) for row in json.loads(done.stdout)}
    assert {("titan", "2.1"), ("titan", "2.0"), ("bridge", "26.08"), ("nemo", None)} <= listed


@pytest.mark.parametrize(
    "words",
    [
        ("--framework", "titan", "--release", "26.08", "--scale", "8"),
        ("--framework", "titan", "--dtype", "mxfp8", "--scale", "8"),
        ("--framework", "titan", "--scale", "24"),
        ("--dtype", "fp8_row", "--scale", "8"),
        ("--framework", "titan", "--set", "optimizer.lr=1", "--scale", "8"),
    ],
    ids=("release", "dtype", "scale", "other", "dotted"),
)
def test_sentences_about_brought_rows(
    words: tuple[str, ...],
    brings: str,
    llmb_here: Command,
    cluster: Callable[..., Path],
    wording: Wording,
) -> None:
    done = llmb_here("submit", "-w", "llama3.1", "-s", "8b", *words, "-d", "--install", cluster())
    wording("frameworks", done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ("--framework", "titan", "--dtype", "bf16"),
        ("--framework", "titan", "--workloads", "nemotron4"),
        ("--workloads", "nemotron4", "--release", "2.0"),
        ("--framework", "titan", "--gpu-type", "b200"),
        ("--release", "2.0", "--gpu-type", "b200"),
    ],
    ids=("found", "named", "named-release", "gpu-type", "release"),
)
def test_discovery_names_what_was_asked_for(
    words: tuple[str, ...],
    brings: str,
    llmb_here: Command,
    cluster: Callable[..., Path],
    wording: Wording,
) -> None:
    done = llmb_here("submit-all", "--max-scale", "8", *words, "-d", "--install", cluster())
    assert done.returncode == (0 if "bf16" in words else 2)
    wording("frameworks", done.stderr)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (None, ("--framework", "titan")),
        ("titan", ("--framework", "titan")),
        ("titan", ("--release", "2.0", "--dtype", "bf16")),
        ("titan", ("--framework", "bridge")),
        ("titan", ("--framework", "nemo")),
    ],
    ids=("missing", "chosen", "other-release", "bridge", "nemo"),
)
def test_the_command_that_installs_what_is_missing(
    chosen: str | None,
    words: tuple[str, ...],
    brings: str,
    llmb_here: Command,
    cluster: Callable[..., Path],
    wording: Wording,
) -> None:
    how = {} if chosen is None else {"framework": chosen}
    install = cluster(install={"node_architecture": "x86_64", **how})
    llama = ("submit", "-w", "llama3.1", "-s", "8b", "--scale", "8", "-d", "--install", install)
    done = llmb_here(*llama, *words)
    assert done.returncode == 0
    (hint,) = re.findall(r"does not exist \((.*)\)", done.stderr)
    wording("frameworks", hint)


def test_discovery_without_a_workload_of_the_framework(
    brings: str, llmb_here: Command, cluster: Callable[..., Path], wording: Wording
) -> None:
    install = cluster(workloads={"installed": ["pretrain_nemotron4"], "config": {}})
    words = ("--framework", "titan", "--release", "2.0", "--install", install)
    done = llmb_here("submit-all", "--max-scale", "8", "-d", *words)
    assert done.returncode == 2
    wording("frameworks", done.stderr)


def test_brought_rows_are_checked(install: Install, llmb_here: Command) -> None:
    install("brings", BRINGS.replace("tp=2", "tp=5"))
    done = llmb_here("plugins", "check", "-w", "pretrain_llama3.1")
    assert done.returncode == 1
    assert "titan: pretrain_llama3.1 8b" in done.stderr


def test_rows_that_fail_name_their_plugin(
    install: Install, llmb_here: Command, cluster: Callable[..., Path]
) -> None:
    source = install("brings", BRINGS.replace("tp=2, mbs=1", "tp=2, mbs=1, tq=1"))
    done = llmb_here(*LLAMA, cluster(), "--scale", "8")
    assert done.returncode == 1
    assert f"plugin {source}" in done.stderr
