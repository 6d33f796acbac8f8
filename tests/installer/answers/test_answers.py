# SPDX-License-Identifier: Apache-2.0
"""Tests of the answers file: what it may contain, its faults, and the layers that override it."""

import dataclasses
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.gpus import GpuType
from llmb.contract.schema import GpuTypeConfig
from llmb.core import yamlfile
from llmb.errors import InputFaults, describe
from llmb.plugins.loader import load_plugins
from llmb_installer.answers.layers import NOTHING, find_missing_keys, override, split_key
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import (
    ARCHITECTURES,
    CPU_WHEELS,
    Answers,
    ImageAnswers,
    PackageVersions,
    to_yaml,
)
from llmb_installer.detect.site import make_site

KNOWN = load_plugins(builtin_plugins()).workloads()
OTHER_MACHINE = next(name for name in ARCHITECTURES if name != platform.machine())
START = "cluster_type: local\ninstall: /somewhere\n"


def read(text: str, install: Path | None = None) -> Answers:
    return read_answers(yamlfile.parse(text, name="a.yaml"), install=install, workloads=KNOWN)


def test_a_gpu_type_that_a_plugin_brings_gets_its_numbers() -> None:
    own = GpuType(gpus_per_node=8, peak_tflops={"bf16": 1307}, memory_gb=192)
    key = next(iter(KNOWN))
    known = {**KNOWN, key: replace(KNOWN[key], gpu_types={"mi300x": own})}
    text = START + "gpu_type: mi300x\ngpu_types: {mi300x: {memory_gb: 256}}\n"
    answers = read_answers(yamlfile.parse(text, name="a.yaml"), workloads=known)
    assert answers.gpu_types == {
        "mi300x": GpuTypeConfig(gpus_per_node=8, peak_tflops={"bf16": 1307}, memory_gb=256)
    }
    assert make_site(answers, "mi300x").gpus_per_node == 8


def test_two_keys_are_enough() -> None:
    answers = read(START)
    assert answers.gpu_type == "auto"
    assert answers.workloads is None
    assert answers.torch_cpu_index == CPU_WHEELS
    assert answers.versions.torch.text == "2.13.0"


def test_one_version_does_not_change_the_other() -> None:
    versions = read(START + "versions: {torch: 2.9.1+cu126}\n").versions
    assert (versions.torch.text, versions.transformers.text) == ("2.9.1+cu126", "5.23.0")


@pytest.mark.parametrize(
    "name", ["nemotron4", "Nemotron-4", "pretrain_nemotron4", "PRETRAINING_NEMOTRON.4"]
)
def test_a_workload_in_any_spelling(name: str) -> None:
    assert read(START + f"workloads: [{name}, nemotron_4]\n").workloads == ("pretrain_nemotron4",)


def test_the_option_overrides_the_file(tmp_path: Path) -> None:
    assert read(START, tmp_path).install == tmp_path
    assert read("cluster_type: local\n", tmp_path).install == tmp_path


def test_a_relative_install_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("cluster_type: local\ninstall: here\n").install == tmp_path.resolve() / "here"


# What is wrong, the number of its line, and the text. The sentences are in
# tests/wording/answers.yaml.txt.
FAULTS = [
    ("a colon in a folder", 3, "image_folder: /a:b"),
    ("an unprintable folder", 3, 'experiments_root: "/a\\nb"'),
    ("a misspelt GPU type", 3, "gpu_type: h1000"),
    ("workloads in one text", 3, "workloads: nemotron4, llama3.1"),
    ("an empty version", 3, "versions: {torch: }"),
    ("an unknown GPU type", 3, "gpu_type: l40s"),
    ("slurm for another type", 3, "slurm: {account: a}"),
    ("a method for another type", 3, "method: srun"),
    ("a relative folder", 3, "image_folder: images"),
    ("a variable in a folder", 3, "experiments_root: $SCRATCH/e"),
    ("no workloads", 3, "workloads: []"),
    ("a file as a folder", 3, f"experiments_root: {__file__}"),
    ("a folder in a file", 3, f"image_folder: {__file__}/x"),
    ("no processors", 3, "images: {processors: 0}"),
    ("a level too high", 3, "images: {level: 99}"),
    ("a level without levels", 3, "images: {level: 1, compression: xz}"),
    ("a version that is a number", 4, "versions:\n  torch: 2.10"),
    ("no version", 4, "versions:\n  torch: newest"),
    ("an index without URL", 3, "torch_index: nowhere"),
    ("an index with a password", 3, "torch_index: https://me:pass@host/simple"),
    ("a Python that is a number", 3, "python: 3.10"),
    ("a Python that is too old", 3, 'python: "3.9"'),
]


@pytest.mark.parametrize(
    ("line", "text"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_fault_has_place_and_fix(line: int, text: str, wording: Callable[..., None]) -> None:
    with pytest.raises(InputFaults) as caught:
        read(f"{START}{text}\n")
    assert [fault.place for fault in caught.value.faults] == [f"a.yaml:{line}"]
    wording("answers.yaml", describe(caught.value))


@pytest.mark.parametrize(
    ("line", "text", "named"),
    [
        (3, "clustertype: local", "clustertype"),
        (3, "venv_type: pipenv", "pipenv"),
        (3, "node_architecture: sparc", "sparc"),
        (3, "workloads: [llama3.1_9b]", "9b"),
        (3, "gpu_types: {l40s: {}}", "gpu_types.l40s"),
        (4, "gpu_types:\n  h200: {like: h10}", "h10"),
        (3, "images: {compression: zip}", "zip"),
        (3, "pass_environment: [PATH]", "PATH"),
        (5, "workloads:\n- nemotron4\n- lama3.1", "lama3.1"),
        (3, "environment: {'D=E': x}", "D=E"),
        (3, "pass_environment: [A, X=1]", "X=1"),
        (4, "versions:\n  torhc: 2.13.0", "torhc"),
        (3, "environment: {HF_TOKEN: x}", "HF_TOKEN"),
        (3, "environment: {WORLD_SIZE: '8'}", "WORLD_SIZE"),
        (3, "environment: {DEBUG: true}", "environment.DEBUG"),
        (4, "cluster_name: a\ncluster_name: b", "cluster_name"),
    ],
)
def test_a_fault_of_a_shared_type_has_its_place(line: int, text: str, named: str) -> None:
    """The checks of YAML, names and variables are tested on their own."""
    with pytest.raises(InputFaults) as caught:
        read(f"{START}{text}\n")
    (fault,) = caught.value.faults
    assert fault.place == f"a.yaml:{line}"
    assert named in fault.message


@pytest.mark.parametrize(
    ("text", "code", "key"),
    [
        ("gpu_type: h1000", "gpu-type-unknown", "gpu_type"),
        ("gpu_types: {l40s: {}}", "gpu-types-invalid", "gpu_types.l40s"),
        ("experiments_root: $SCRATCH/e", "folder-variable", "experiments_root"),
        ("image_folder: /a:b", "folder-unusable", "image_folder"),
        ("framework: bridgee", "value-not-allowed", "framework"),
        ("bridge_release: '26.2'", "release-unknown", "bridge_release"),
        ("image_folder: images", "folder-relative", "image_folder"),
        (f"image_folder: {__file__}/x", "folder-is-file", "image_folder"),
        ("images: {level: 99}", "level-invalid", "images.level"),
        ("images: {processors: 0}", "processors-invalid", "images.processors"),
        ("slurm: {account: a}", "section-misplaced", "slurm"),
        ("method: srun", "method-misplaced", "method"),
        (f"node_architecture: {OTHER_MACHINE}", "architecture-not-local", "node_architecture"),
        ("workloads: []", "workloads-empty", "workloads"),
        ("workloads: nemotron4, llama3.1", "workloads-not-list", "workloads.0"),
    ],
)
def test_a_fault_has_code_and_key(text: str, code: str, key: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read(f"{START}{text}\n")
    assert [(fault.code, fault.key) for fault in caught.value.faults] == [(code, key)]


def test_a_variable_in_the_install_folder_is_not_expanded() -> None:
    with pytest.raises(InputFaults) as caught:
        read("cluster_type: local\ninstall: $SCRATCH/llmb\n")
    (fault,) = caught.value.faults
    assert (fault.place, fault.code, fault.key) == ("a.yaml:2", "folder-variable", "install")


@pytest.mark.parametrize(
    "text",
    [
        "cluster_typ: local\ninstall: /somewhere\n",
        (
            "cluster_type: runai\ninstall: /x\ngpu_type: h100\n"
            "runai: {base_ur: 'https://h', project: p, pvc: {name: n, path: /p, claim: c}}\n"
        ),
    ],
)
def test_a_misspelt_required_key_is_reported_once(text: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read(text)
    assert [fault.code for fault in caught.value.faults] == ["key-unknown"]
    assert caught.value.hint is None, "llmb-install would not ask for it"


def test_recorded_answers_may_have_no_workloads() -> None:
    document = yamlfile.parse(START + "workloads: []\n", name="a.yaml")
    assert read_answers(document, workloads=KNOWN, recorded=True).workloads == ()


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(InputFaults) as caught:
        read(START + "gpu_type: b201\nvenv_type: pip\nworkloads: [one, two]\n")
    assert len(caught.value.faults) == 4


RUNAI_KEYS = ["gpu_type", "runai.base_url", "runai.project", "runai.pvc"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", ["cluster_type", "install"]),
        ("cluster_type: local\ninstall:\n", ["install"]),
        ("cluster_type: slurm\n", ["install"]),
        ("cluster_type: runai\n", ["install", *RUNAI_KEYS]),
        (
            "cluster_type: runai\nrunai: {project: p}\n",
            ["install", "gpu_type", "runai.base_url", "runai.pvc"],
        ),
        ("install: /x\ngpu_typ: h100\n", ["cluster_type"]),
    ],
)
def test_all_missing_keys_are_reported_at_once(text: str, keys: list[str]) -> None:
    document = yamlfile.parse(text, name="a.yaml")
    assert find_missing_keys(document.data) == keys
    with pytest.raises(InputFaults) as caught:
        read_answers(document, workloads=KNOWN)
    missing_keys = [fault for fault in caught.value.faults if fault.code == "key-missing"]
    assert [(fault.place, fault.key) for fault in missing_keys] == [("a.yaml", key) for key in keys]
    others = [fault.place for fault in caught.value.faults if fault.code != "key-missing"]
    assert others == (["a.yaml:2"] if "gpu_typ:" in text else [])


def test_missing_keys_have_a_hint(wording: Callable[..., None]) -> None:
    with pytest.raises(InputFaults) as caught:
        read("")
    wording("answers.yaml", describe(caught.value))


SLURM = """cluster_type: slurm
install: /shared/llmb
gpu_type: h200
gpu_types: {h200: {like: h100, gpus_per_node: 8}, b200: {partition: blackwell, gres: 8}}
node_architecture: x86_64
method: srun
slurm:
  account: benchmarks
  container: none
  gpu: {partition: batch, gres: 8}
  cpu: {partition: cpu, gres: null}
"""
RUNAI = """cluster_type: runai
install: /pvc/llmb
gpu_type: h100
runai: {base_url: https://host/api/v1, project: p, pvc: {name: w, path: /pvc, claim: c}, app_id: me}
"""


def test_a_slurm_cluster() -> None:
    answers = read(SLURM)
    assert answers.slurm is not None
    assert answers.slurm.option("partition", "cpu") == "cpu"
    assert answers.slurm.option("gres", "cpu") is None
    assert answers.cluster_name == "slurm"
    assert not answers.uses_images
    assert answers.gpu_types["h200"].like == "h100"


def test_a_runai_cluster() -> None:
    answers = read(RUNAI)
    assert answers.section is not None
    assert answers.section.pvc.claim == "c"
    assert answers.uses_images


@pytest.mark.parametrize(
    ("given", "taken"),
    [("arm64", "aarch64"), ("ARM64", "aarch64"), ("amd64", "x86_64"), ("aarch64", "aarch64")],
)
def test_an_architecture_by_its_name_in_registries(given: str, taken: str) -> None:
    text = f"cluster_type: slurm\ninstall: /i\ngpu_type: h100\nnode_architecture: {given}\n"
    assert read(text).node_architecture == taken


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        (RUNAI.replace("h100", "auto"), "a.yaml:3", "gpu-type-undetected"),
        ("cluster_type: slurm\ninstall: /x\ngpu_type: cpu\n", "a.yaml:3", "cpu-without-images"),
    ],
    ids=["auto on Run:ai", "cpu with images"],
)
def test_a_gpu_type_that_cannot_be(
    text: str, place: str, code: str, wording: Callable[..., None]
) -> None:
    with pytest.raises(InputFaults) as caught:
        read(text)
    assert [(fault.place, fault.code) for fault in caught.value.faults] == [(place, code)]
    wording("answers.yaml", describe(caught.value))


def test_an_unknown_key_of_slurm() -> None:
    with pytest.raises(InputFaults) as caught:
        read(SLURM.replace("{partition: batch", "{partitoin: batch"))
    assert [fault.place for fault in caught.value.faults] == ["a.yaml:10"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("slurm: {contaner: none}", "key-unknown"),
        ("slurm: {container: non}", "value-not-allowed"),
        ("slurm: [container]", "value-type"),
        ("slrum: {container: none}", "key-unknown"),
        ("slurm: {container: none}\ngpu_types: {h99: {lik: h100}}", "key-unknown"),
        ("slurm: {container: none}\nrunai: {base_ur: x}", "section-misplaced"),
        ("slurm: {container: none}\nimages: {compression: lz, level: 22}", "value-not-allowed"),
    ],
)
def test_a_fault_has_no_followers(more: str, code: str) -> None:
    """What could not be read has its default, from which nothing follows: not that there are no
    images for cpu.
    """
    gpu = "h99" if "h99" in more else "cpu"
    with pytest.raises(InputFaults) as caught:
        read(f"cluster_type: slurm\ninstall: /x\ngpu_type: {gpu}\n{more}\n")
    assert [fault.code for fault in caught.value.faults] == [code]


@pytest.mark.parametrize("name", ["llama3.1_8b", "pretrain_llama31-405B", "llama3.1"])
def test_a_workload_with_a_size(name: str) -> None:
    assert read(START + f"workloads: [{name}]\n").workloads == ("pretrain_llama3.1",)


def test_layers_are_joined_key_by_key() -> None:
    file = yamlfile.parse(SLURM, name="a.yaml")
    document = override(file, {"slurm": {"gpu": {"partition": "debug"}}, "install": "/y"}, "--set")
    answers = read_answers(document, workloads=KNOWN)
    assert answers.slurm is not None
    assert answers.slurm.gpu.given == {"partition": "debug", "gres": 8}
    assert (answers.slurm.account, str(answers.install)) == ("benchmarks", "/y")
    assert override(file, {}, "--set") is file


def test_a_fault_is_placed_at_its_layer() -> None:
    document = override(
        yamlfile.parse(SLURM, name="a.yaml"), {"slurm": {"acount": "x"}}, "--set slurm.acount"
    )
    document = override(document, {"gpu_type": "h1000"}, "your answers")
    with pytest.raises(InputFaults) as caught:
        read_answers(document, workloads=KNOWN)
    assert {fault.place for fault in caught.value.faults} == {"--set slurm.acount", "your answers"}
    below = override(
        yamlfile.parse(SLURM + "cluster_nam: x\n", name="a.yaml"), {"cluster_name": "y"}, "--set"
    )
    with pytest.raises(InputFaults) as caught:
        read_answers(below, workloads=KNOWN)
    assert [fault.place for fault in caught.value.faults] == ["a.yaml:12"]


def test_every_key_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "install.md").read_text("utf-8")
    for field in (
        *dataclasses.fields(Answers),
        *dataclasses.fields(PackageVersions),
        *dataclasses.fields(ImageAnswers),
    ):
        assert f"`{field.name}`" in page or "internal" in field.metadata, field.name


def test_a_layer_without_a_file() -> None:
    document = override(
        NOTHING, {"cluster_type": "local", "install": "/x", "gpu_type": "cpu"}, "your answers"
    )
    assert read_answers(document, workloads=KNOWN).gpu_type == "cpu"


def test_a_list_is_not_answers() -> None:
    with pytest.raises(InputFaults) as caught:
        read("- local\n")
    assert [fault.place for fault in caught.value.faults] == ["a.yaml:1"]


def test_recorded_answers_read_the_same() -> None:
    text = (
        START
        + 'python: "3.10"\ntorch_index: https://host/simple\ntorch_cpu_index: null\nworkloads:'
        " nemotron4\n"
    )
    answers = read(text + "environment: {N: '1'}\nversions: {torch: '2.10'}\n")
    assert read(to_yaml(answers)) == answers


@pytest.mark.parametrize("text", [SLURM, RUNAI])
def test_recorded_answers_of_a_cluster_read_the_same(text: str) -> None:
    text += (
        "images: {builder: enroot, level: 3}\nwheelhouse: /w\nexperiments_root:"
        " /e\npass_environment: [A]\n"
    )
    answers = read(text)
    assert read(to_yaml(answers)) == answers
    assert "null" not in to_yaml(answers).replace("gres: null", "")


@pytest.mark.parametrize("first", ["cluster_typ: slurm\n", "cluster_type: slrm\n", ""])
def test_a_wrong_cluster_type_hides_no_other_fault(first: str) -> None:
    """Also for values, which are only checked where their types are right."""
    text = (
        f"{first}install: $HOME/x\ngpu_type: h1000\nworkloads: [lama]\nimages: {{level:"
        " 99}\nmethod: srun\n"
    )
    with pytest.raises(InputFaults) as caught:
        read(text)
    keys = [
        fault.key for fault in caught.value.faults if fault.code and fault.code != "key-missing"
    ]
    assert {"install", "gpu_type", "images.level"} <= {*keys}
    line = text.split("workloads")[0].count("\n") + 1
    assert f"a.yaml:{line}" in [fault.place for fault in caught.value.faults]
    assert "method" not in keys, "the cluster type is unknown"


def test_answers_have_no_secrets(wording: Callable[..., None]) -> None:
    with pytest.raises(InputFaults) as caught:
        read(START + "HF_TOKEN: hf_abcdefgh\n")
    assert [fault.place for fault in caught.value.faults] == ["a.yaml:3"]
    assert "hf_abc" not in describe(caught.value)
    wording("answers.yaml", describe(caught.value))


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("slurm.gpu.partition", ("slurm", "gpu", "partition")),
        ('plugins."zope.bench".x', ("plugins", "zope.bench", "x")),
        ("plugins.file:a.b.py.x", ("plugins", "file:a.b.py", "x")),
        ("plugins.file:a.py", ("plugins", "file:a.py")),
        ("plugins.file:a", ("plugins", "file:a")),
        ('a."b', ("a", '"b')),
        ("a..b", ("a", "", "b")),
        ("", ("",)),
    ],
)
def test_the_parts_of_a_key(key: str, parts: tuple[str, ...]) -> None:
    assert split_key(key) == parts
