# SPDX-License-Identifier: Apache-2.0
"""Tests of the answers file: what it may say, what its faults say, and the layer above it."""

import dataclasses
import platform
from pathlib import Path

import pytest

from llmb.builtin import builtin_plugins
from llmb.errors import InputFaults, describe
from llmb.plugins.loader import load_plugins
from llmb.text import yamlfile
from llmb_installer.answers import (
    ARCHITECTURES,
    CPU_WHEELS,
    NOTHING,
    Answers,
    ImageAnswers,
    Versions,
    missing,
    read_answers,
    to_yaml,
    with_layer,
)

KNOWN = load_plugins(builtin_plugins()).workloads()
OTHER_MACHINE = next(name for name in ARCHITECTURES if name != platform.machine())
START = "cluster_type: local\ninstall: /somewhere\n"


def read(text: str, install: Path | None = None) -> Answers:
    return read_answers(yamlfile.parse(text, name="a.yaml"), install=install, known=KNOWN)


def test_little_is_enough() -> None:
    answers = read(START)
    assert answers.gpu_type == "auto"
    assert answers.workloads is None
    assert answers.torch_cpu_index == CPU_WHEELS
    assert answers.versions.torch.text == "2.13.0"


def test_one_version_leaves_the_other() -> None:
    versions = read(START + "versions: {torch: 2.9.1+cu126}\n").versions
    assert (versions.torch.text, versions.transformers.text) == ("2.9.1+cu126", "5.23.0")


@pytest.mark.parametrize("name", ["nemotron4", "Nemotron-4", "pretrain_nemotron4", "PRETRAINING_NEMOTRON.4"])
def test_a_workload_in_any_spelling(name: str) -> None:
    assert read(START + f"workloads: [{name}, nemotron_4]\n").workloads == ("pretrain_nemotron4",)


def test_the_option_is_over_the_file(tmp_path: Path) -> None:
    assert read(START, tmp_path).install == tmp_path
    assert read("cluster_type: local\n", tmp_path).install == tmp_path


def test_a_folder_is_taken_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read("cluster_type: local\ninstall: here\n").install == tmp_path.resolve() / "here"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("clustertype: local\n", "a.yaml:3", "did you mean 'cluster_type'?"),
        ("image_folder: /a:b\n", "a.yaml:3", "image_folder: /a:b cannot be used: a ':' parts the folders"),
        ('experiments_root: "/a\\nb"\n', "a.yaml:3", "it has a character that cannot be shown"),
        ("gpu_type: h1000\n", "a.yaml:3", "did you mean 'h100'?"),
        ("venv_type: pipenv\n", "a.yaml:3", "'pipenv' is not one of auto, uv, venv, conda"),
        ("node_architecture: sparc\n", "a.yaml:3", "'sparc' is not one of auto, x86_64, aarch64"),
        ("workloads: [llama3.1_9b]\n", "a.yaml:3", "pretrain_llama3.1 has no size '9b'"),
        ("workloads: nemotron4, llama3.1\n", "a.yaml:3", "write a list: [nemotron4, llama3.1]"),
        ("versions: {torch: }\n", "a.yaml:3", "there is nothing; write a version like 2.13.0"),
        ("gpu_type: h200\n", "a.yaml:3", "'gpu_types: {h200: {like: TYPE}}' adds one"),
        ("gpu_types: {h200: {}}\n", "a.yaml:3", "gpu_types.h200: needs the key 'like'"),
        ("gpu_types:\n  h200: {like: h10}\n", "a.yaml:4", "did you mean 'h100'?"),
        ("slurm: {account: a}\n", "a.yaml:3", "slurm is for cluster type slurm, and this one is local"),
        ("method: srun\n", "a.yaml:3", "method srun is for cluster type slurm"),
        ("image_folder: images\n", "a.yaml:3", "image_folder: images is not a full path"),
        ("experiments_root: $SCRATCH/e\n", "a.yaml:3", "variables are not replaced in $SCRATCH/e"),
        ("images: {compression: zip}\n", "a.yaml:3", "images.compression: 'zip' is not one of"),
        ("pass_environment: [PATH]\n", "a.yaml:3", "PATH is the node's or the image's own"),
        ("workloads:\n- nemotron4\n- lama3.1\n", "a.yaml:5", "did you mean 'pretrain_llama3.1'?"),
        ("workloads: []\n", "a.yaml:3", "workloads is empty"),
        ("environment: {'D=E': x}\n", "a.yaml:3", "'D=E' is not a name that a shell can give a variable"),
        ("pass_environment: [A, X=1]\n", "a.yaml:3", "'X=1' is not a name that a shell can give a variable"),
        (f"experiments_root: {__file__}\n", "a.yaml:3", f"cannot be a folder: {__file__} is a file"),
        (f"image_folder: {__file__}/x\n", "a.yaml:3", f"cannot be a folder: {__file__} is a file"),
        ("images: {processors: 0}\n", "a.yaml:3", "images.processors: 0 is less than 1"),
        ("images: {level: 99}\n", "a.yaml:3", "images.level: 99 is not one of 1 to 22, which zstd has"),
        ("images: {level: 1, compression: xz}\n", "a.yaml:3", "images.level: xz has no levels"),
        (f"node_architecture: {OTHER_MACHINE}\n", "a.yaml:3", "a local installation is for this machine"),
        ("versions:\n  torch: 2.10\n", "a.yaml:4", "write the version in quotes"),
        ("versions:\n  torch: newest\n", "a.yaml:4", "'newest' is not a version"),
        ("versions:\n  torhc: 2.13.0\n", "a.yaml:4", "did you mean 'torch'?"),
        ("torch_index: nowhere\n", "a.yaml:3", "must be the URL of a package index"),
        ("torch_index: https://me:pass@host/simple\n", "a.yaml:3", "must not hold a user or password"),
        ("python: 3.10\n", "a.yaml:3", 'write a version in quotes ("3.12")'),
        ("environment: {HF_TOKEN: x}\n", "a.yaml:3", "environment.HF_TOKEN: HF_TOKEN looks like a secret"),
        ("environment: {WORLD_SIZE: '8'}\n", "a.yaml:3", "environment.WORLD_SIZE: WORLD_SIZE is set by llmb"),
        ("environment: {DEBUG: true}\n", "a.yaml:3", "put it in quotes"),
        ("cluster_name: a\ncluster_name: b\n", "a.yaml:4", "duplicate key 'cluster_name'"),
    ],
)
def test_a_fault_names_place_and_cure(text: str, place: str, message: str) -> None:
    with pytest.raises(InputFaults) as caught:
        read(START + text)
    said = describe(caught.value)
    assert f"error: {place}: " in said
    assert message in said


def test_a_variable_in_the_folder_is_not_replaced() -> None:
    with pytest.raises(InputFaults, match=r"a.yaml:2: install: variables are not replaced"):
        read("cluster_type: local\ninstall: $SCRATCH/llmb\n")


def test_a_misspelt_key_that_is_needed_is_told_once() -> None:
    with pytest.raises(InputFaults) as caught:
        read("cluster_typ: local\ninstall: /somewhere\n")
    assert len(caught.value.faults) == 1
    assert "did you mean 'cluster_type'?" in describe(caught.value)
    assert "in a terminal" not in describe(caught.value)


def test_where_all_were_removed_none_are_named() -> None:
    document = yamlfile.parse(START + "workloads: []\n", name="a.yaml")
    assert read_answers(document, known=KNOWN, recorded=True).workloads == ()


def test_faults_are_told_together() -> None:
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
        ("cluster_type: runai\nrunai: {project: p}\n", ["install", "gpu_type", "runai.base_url", "runai.pvc"]),
        ("install: /x\ngpu_typ: h100\n", ["cluster_type"]),
    ],
)
def test_all_that_is_missing_is_named_at_once(text: str, keys: list[str]) -> None:
    document = yamlfile.parse(text, name="a.yaml")
    assert missing(document.data) == keys
    with pytest.raises(InputFaults) as caught:
        read_answers(document, known=KNOWN)
    told = [str(fault) for fault in caught.value.faults]
    assert [line for line in told if line.endswith("is missing")] == [f"a.yaml: '{key}' is missing" for key in keys]
    assert ("gpu_typ:" in "".join(told)) == ("gpu_typ:" in text)
    assert "docs/install.md" in describe(caught.value)


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
    assert answers.runai is not None
    assert answers.runai.pvc.claim == "c"
    assert answers.uses_images


@pytest.mark.parametrize(
    ("given", "taken"), [("arm64", "aarch64"), ("ARM64", "aarch64"), ("amd64", "x86_64"), ("aarch64", "aarch64")]
)
def test_an_architecture_as_registries_call_it(given: str, taken: str) -> None:
    text = f"cluster_type: slurm\ninstall: /i\ngpu_type: h100\nnode_architecture: {given}\n"
    assert read(text).node_architecture == taken


def test_runai_tells_no_gpu_type() -> None:
    with pytest.raises(InputFaults, match=r"a.yaml:3: gpu_type auto: Run:ai does not tell it"):
        read(RUNAI.replace("h100", "auto"))


def test_a_wrong_key_of_slurms() -> None:
    with pytest.raises(InputFaults, match=r"a.yaml:10: .*'partitoin' is not a key here"):
        read(SLURM.replace("{partition: batch", "{partitoin: batch"))


def test_images_need_a_gpu() -> None:
    with pytest.raises(InputFaults, match="gpu_type cpu has no images"):
        read("cluster_type: slurm\ninstall: /x\ngpu_type: cpu\n")


@pytest.mark.parametrize("name", ["llama3.1_8b", "pretrain_llama31-405B", "llama3.1"])
def test_a_workload_with_a_size(name: str) -> None:
    assert read(START + f"workloads: [{name}]\n").workloads == ("pretrain_llama3.1",)


def test_layers_are_joined_key_by_key() -> None:
    file = yamlfile.parse(SLURM, name="a.yaml")
    document = with_layer(file, {"slurm": {"gpu": {"partition": "debug"}}, "install": "/y"}, "--set")
    answers = read_answers(document, known=KNOWN)
    assert answers.slurm is not None
    assert answers.slurm.gpu.given == {"partition": "debug", "gres": 8}
    assert (answers.slurm.account, str(answers.install)) == ("benchmarks", "/y")
    assert with_layer(file, {}, "--set") is file


def test_a_fault_names_its_layer() -> None:
    document = with_layer(yamlfile.parse(SLURM, name="a.yaml"), {"slurm": {"acount": "x"}}, "--set slurm.acount")
    document = with_layer(document, {"gpu_type": "h1000"}, "your answers")
    with pytest.raises(InputFaults) as caught:
        read_answers(document, known=KNOWN)
    assert {fault.place for fault in caught.value.faults} == {"--set slurm.acount", "your answers"}
    below = with_layer(yamlfile.parse(SLURM + "cluster_nam: x\n", name="a.yaml"), {"cluster_name": "y"}, "--set")
    with pytest.raises(InputFaults, match=r"a.yaml:12: cluster_nam"):
        read_answers(below, known=KNOWN)


def test_every_key_is_in_the_documentation() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "install.md").read_text("utf-8")
    for field in (*dataclasses.fields(Answers), *dataclasses.fields(Versions), *dataclasses.fields(ImageAnswers)):
        assert f"`{field.name}`" in page, field.name


def test_layers_over_nothing() -> None:
    document = with_layer(NOTHING, {"cluster_type": "local", "install": "/x", "gpu_type": "cpu"}, "your answers")
    assert read_answers(document, known=KNOWN).gpu_type == "cpu"


def test_a_list_is_no_answer() -> None:
    with pytest.raises(InputFaults, match=r"a.yaml:1: must be a mapping"):
        read("- local\n")


def test_what_is_recorded_reads_the_same() -> None:
    text = START + 'python: "3.10"\ntorch_index: https://host/simple\ntorch_cpu_index: null\nworkloads: nemotron4\n'
    answers = read(text + "environment: {N: '1'}\nversions: {torch: '2.10'}\n")
    assert read(to_yaml(answers)) == answers


@pytest.mark.parametrize("text", [SLURM, RUNAI])
def test_what_is_recorded_of_a_cluster_reads_the_same(text: str) -> None:
    text += "images: {builder: enroot, level: 3}\nwheelhouse: /w\nexperiments_root: /e\npass_environment: [A]\n"
    answers = read(text)
    assert read(to_yaml(answers)) == answers
    assert "null" not in to_yaml(answers).replace("gres: null", "")


@pytest.mark.parametrize("first", ["cluster_typ: slurm\n", "cluster_type: slrm\n", ""])
def test_a_wrong_cluster_type_hides_no_other_fault(first: str) -> None:
    """Of values too, which are only looked at where all is of its type."""
    text = f"{first}install: $HOME/x\ngpu_type: h1000\nworkloads: [lama]\nimages: {{level: 99}}\nmethod: srun\n"
    with pytest.raises(InputFaults) as caught:
        read(text)
    told = describe(caught.value)
    for place in ("install: variables", "gpu_type 'h1000'", "no workload is called 'lama'", "images.level: 99"):
        assert place in told
    assert "method srun is for" not in told, "nobody knows for which cluster type it is"


def test_a_secret_is_no_answer() -> None:
    with pytest.raises(InputFaults) as caught:
        read(START + "HF_TOKEN: hf_abcdefgh\n")
    told = describe(caught.value)
    assert "a.yaml:3: HF_TOKEN: 'HF_TOKEN' is not a key here" in told
    assert "hint: a secret is no answer: export HF_TOKEN, or keep it in ~/.config/llmb/secrets" in told
    assert "hf_abc" not in told
