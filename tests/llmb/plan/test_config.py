# SPDX-License-Identifier: Apache-2.0
"""Tests of the cluster's configuration: its keys, the layers above it, and how it is found."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from llmb.contract.gpus import GpuType, known_types, peak_at
from llmb.contract.sbatch import SlurmConfig, SlurmOptions
from llmb.contract.schema import (
    ClusterConfig,
    GpuTypeConfig,
    InstallConfig,
    WorkloadConfig,
    WorkloadsConfig,
)
from llmb.core import typed, yamlfile
from llmb.errors import Fault, InputFaults, UsageError, describe
from llmb.plan.config_layers import load_config
from llmb.plan.locate import find_install
from llmb.plan.read_config import NEWER, read_config
from llmb_installer import record
from llmb_installer.cluster_types import all_types
from llmb_runai.runai_config import RunaiConfig, RunaiPvc

EXAMPLE = """
schema_version: 2
cluster_type: slurm            # local | slurm | runai
cluster_name: mycluster
llmb_install: /lustre/me/llmb
experiments_root: null         # elsewhere when the install folder is shared and read-only
gpu_type: h100                 # the default; a cluster of several kinds adds:
gpu_types: {h200: {like: h100, partition: batch2, gres: 8, gpus_per_node: 8}}
environment: {NCCL_DEBUG: WARN}
pass_environment: []           # names taken from the submitting shell
slurm:                         # account etc. common; gpu and cpu each may override; null unsets
  account: benchmarks
  container: pyxis             # pyxis | none
  gpu: {partition: batch, gres: 8}
  cpu: {partition: cpu, gres: null}
runai: {base_url: https://host/api/v1, project: p, pvc: {name: w, path: /w, claim: c}}
install: {venv_type: uv, method: slurm, node_architecture: x86_64, image_folder: null}
workloads:
  installed: [pretrain_nemotron4]
  config: {pretrain_nemotron4: {venv_path: /venvs/n, venv_type: uv, environment: {A: 1}}}
"""


def parse(text: str) -> ClusterConfig:
    return read_config(
        yamlfile.parse(textwrap.dedent(text).lstrip("\n"), name="c.yaml"), cluster_types=all_types
    )


def faults_of(text: str) -> list[Fault]:
    with pytest.raises(InputFaults) as raised:
        parse(text)
    return raised.value.faults


def write(folder: Path, text: str = "cluster_type: slurm\ngpu_type: h100\nslurm: {}\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cluster_config.yaml").write_text(textwrap.dedent(text))
    return folder


def load(folder: Path, **environ: str) -> tuple[ClusterConfig, list[str]]:
    return load_config(
        folder, {"XDG_CONFIG_HOME": str(folder / "no-config"), **environ}, cluster_types=all_types
    )


def test_every_key_of_the_documented_example() -> None:
    assert parse(EXAMPLE) == ClusterConfig(
        schema_version=2,
        cluster_type="slurm",
        cluster_name="mycluster",
        llmb_install=Path("/lustre/me/llmb"),
        experiments_root=None,
        gpu_type="h100",
        gpu_types={"h200": GpuTypeConfig(like="h100", partition="batch2", gres=8, gpus_per_node=8)},
        environment={"NCCL_DEBUG": "WARN"},
        pass_environment=(),
        sections={
            "slurm": SlurmConfig(
                account="benchmarks",
                container="pyxis",
                gpu=SlurmOptions({"partition": "batch", "gres": 8}),
                cpu=SlurmOptions({"partition": "cpu", "gres": None}),
            ),
            "runai": RunaiConfig(
                base_url="https://host/api/v1",
                project="p",
                pvc=RunaiPvc(name="w", path="/w", claim="c"),
            ),
        },
        install=InstallConfig(
            venv_type="uv", method="slurm", node_architecture="x86_64", image_folder=None
        ),
        workloads=WorkloadsConfig(
            installed=("pretrain_nemotron4",),
            config={
                "pretrain_nemotron4": WorkloadConfig(
                    venv_path=Path("/venvs/n"), venv_type="uv", environment={"A": "1"}
                )
            },
        ),
        kind=all_types()["slurm"],
    )


def test_a_written_configuration_reads_back_equal(tmp_path: Path) -> None:
    import yaml

    config = parse(EXAMPLE)
    sections = {key: typed.to_data(section) for key, section in config.sections.items()}
    assert parse(yaml.safe_dump({**typed.to_data(config), **sections})) == config


def test_two_keys_are_enough() -> None:
    config = parse("cluster_type: local\ngpu_type: cpu\n")
    assert (config.cluster_name, config.workloads.installed, config.slurm) == (
        "cluster",
        None,
        None,
    )


WRONG: dict[str, tuple[int, str, str]] = {
    "clustername: x": (3, "key-unknown", "clustername"),
    "slurm:\n  acount: x": (4, "key-unknown", "slurm.acount"),
    "slurm:\n  account: a\n  gpu:\n    partition: p\n    gress: 8": (
        7,
        "key-unknown",
        "slurm.gpu.gress",
    ),
    "slurm:\n  cpu:\n    gres: [8]": (5, "value-type", "slurm.cpu.gres"),
    "slurm:\n  gpu: batch": (4, "value-not-allowed", "slurm.gpu"),
    "slurm:\n  container: docker": (4, "value-not-allowed", "slurm.container"),
    "runai: {base_url: u, project: p}": (3, "key-missing", "runai"),
    "gpu_types:\n  h200: {like: h10}": (4, "gpu-type-unknown", "gpu_types.h200.like"),
    "gpu_types:\n  l40s: {gres: 8}": (4, "key-missing", "gpu_types.l40s"),
    "gpu_types:\n  h100: {peak_tflops: {bf16: -1}}": (
        4,
        "value-not-allowed",
        "gpu_types.h100.peak_tflops.bf16",
    ),
    "gpu_types:\n  h100: {memory_gb: 0}": (4, "value-not-allowed", "gpu_types.h100.memory_gb"),
    "gpu_types:\n  h100: {gpus_per_node: 0}": (
        4,
        "value-not-allowed",
        "gpu_types.h100.gpus_per_node",
    ),
    "types: {}": (3, "key-unknown", "types"),
    "gpu_types:\n  h100: {gpus: 8}": (4, "key-unknown", "gpu_types.h100.gpus"),
    "environment:\n  A: true": (4, "value-type", "environment.A"),
    "environment:\n  A: null": (4, "value-type", "environment.A"),
    "schema_version: 1": (3, "value-not-allowed", "schema_version"),
    "install: {venv_type: poetry}": (3, "value-not-allowed", "install.venv_type"),
    "workload: {}": (3, "key-unknown", "workload"),
    "environment: {A: 1}\nenvironment: {B: 1}": (4, "key-duplicate", "environment"),
}


@pytest.mark.parametrize("lines", WRONG)
def test_a_fault_has_line_code_and_key(lines: str) -> None:
    (found,) = faults_of(f"cluster_type: slurm\ngpu_type: h100\n{lines}\n")
    line, code, key = WRONG[lines]
    assert (found.place, found.code, found.key) == (f"c.yaml:{line}", code, key)


def test_a_file_of_a_later_release_has_no_other_fault() -> None:
    """Its unknown keys are no mistakes, and nothing may be done to it but to update llmb."""
    with pytest.raises(UsageError) as caught:
        read_config(
            yamlfile.parse("schema_version: 3\ngpu_type: x9\nfuture: {a: 1}\n", name="c.yaml"),
            cluster_types=all_types,
        )
    assert (caught.value.code, caught.value.key, caught.value.value) == (NEWER, "schema_version", 3)
    assert caught.value.message.startswith("c.yaml:1: ")
    assert caught.value.hint


def test_missing_keys_have_a_fix() -> None:
    with pytest.raises(InputFaults) as caught:
        read_config(yamlfile.parse("cluster_name: x\n", name="c.yaml"), cluster_types=all_types)
    faults = caught.value.faults
    assert [(one.code, one.value) for one in faults] == [
        ("key-missing", "cluster_type"),
        ("key-missing", "gpu_type"),
    ]
    assert all(one.hint for one in faults)


def test_wording_of_faults(wording: Callable[..., None]) -> None:
    cases = [
        (lines, faults_of(f"cluster_type: slurm\ngpu_type: h100\n{lines}\n"))
        for lines in [*WRONG, *MISPLACED]
    ]
    cases += [(text, faults_of(text)) for text in UNKNOWN_TYPES]
    wording(
        "cluster_config.yaml",
        "\n\n".join(f"{lines}\n{describe(InputFaults(found))}" for lines, found in cases),
    )


@pytest.mark.parametrize(
    ("lines", "line", "key"),
    [
        ("environment:\n  B: 1\n  HF_TOKEN: x", 5, "environment.HF_TOKEN"),
        ("environment:\n  WORLD_SIZE: 8", 4, "environment.WORLD_SIZE"),
        ("environment:\n  SLURM_NTASKS: 8", 4, "environment.SLURM_NTASKS"),
        ("environment:\n  SBATCH_QOS: x", 4, "environment.SBATCH_QOS"),
        ("environment:\n  PATH: /bin", 4, "environment.PATH"),
        ("environment:\n  A-B: x", 4, "environment.A-B"),
        ("environment:\n  MASTER_PORT: 80", 4, "environment.MASTER_PORT"),
        ("environment:\n  A: b\n  B: http://me:word1234@proxy:80", 5, "environment.B"),
        ("pass_environment: [A, RANK]", 3, "pass_environment.1"),
        ("pass_environment:\n- 'A,B'", 4, "pass_environment.0"),
        (
            "workloads:\n  config:\n    w:\n      environment: {NGC_API_KEY: x}",
            6,
            "workloads.config.w.environment.NGC_API_KEY",
        ),
        (
            "workloads:\n  config:\n    w:\n      environment:\n        LOCAL_RANK: 0",
            7,
            "workloads.config.w.environment.LOCAL_RANK",
        ),
    ],
)
def test_variables_that_cannot_be_set(lines: str, line: int, key: str) -> None:
    (found,) = faults_of(f"cluster_type: slurm\ngpu_type: h100\n{lines}\n")
    assert (found.place, found.key) == (f"c.yaml:{line}", key)
    assert found.hint


def test_a_secret_may_be_passed_on_by_its_name() -> None:
    config = parse(
        "cluster_type: slurm\ngpu_type: h100\npass_environment: [WANDB_API_KEY, SITE_PROXY]\n"
    )
    assert config.pass_environment == ("WANDB_API_KEY", "SITE_PROXY")


UNKNOWN_TYPES = (
    "cluster_type: slurm\n\ngpu_type: h1000\n",
    "cluster_type: slurm\n\ngpu_type: l40s\n",
)


@pytest.mark.parametrize("text", UNKNOWN_TYPES)
def test_an_unknown_gpu_type(text: str) -> None:
    (found,) = faults_of(text)
    assert (found.place, found.code, found.key) == ("c.yaml:3", "gpu-type-unknown", "gpu_type")


def test_the_hint_for_a_new_gpu_type_adds_it() -> None:
    (found,) = faults_of(UNKNOWN_TYPES[1])
    added = (found.hint or "")[(found.hint or "").index("gpu_types:") :]
    assert yaml.safe_load(added) == {"gpu_types": {"l40s": {"like": "h100"}}}
    assert parse(f"cluster_type: slurm\ngpu_type: l40s\n{added}\n").rows_for("l40s") == "h100"


def test_all_faults_are_reported_at_once() -> None:
    found = faults_of(
        "cluster_tipe: slurm\ngpu_type: 7\nslurm: {nice: x, mpi: [a]}\nenvironment: 3\n"
    )
    assert sorted(fault.place for fault in found) == [
        "c.yaml:1",
        "c.yaml:1",
        "c.yaml:3",
        "c.yaml:3",
        "c.yaml:4",
    ]


def test_options_of_gpu_and_cpu_jobs_override_the_common_ones_and_null_unsets() -> None:
    config = parse("""
        cluster_type: slurm
        gpu_type: h100
        slurm: {account: a, partition: p, gres: 8, qos: q, gpu: {partition: g}, cpu: {gres: null, account: b}}
        """)
    assert config.slurm is not None
    names = ("account", "partition", "gres", "qos", "nodelist")
    assert [config.slurm.option(name) for name in names] == ["a", "g", 8, "q", None]
    assert [config.slurm.option(name, "cpu") for name in names] == ["b", "p", None, "q", None]


@pytest.mark.parametrize(
    "section",
    [
        "{nodelist: 'n[1-'}",
        "{exclude: 'n1]'}",
        "{args: {nodelist: 'n[]'}}",
        "{gpu: {nodelist: 'n[1-'}}",
        "{cpu: {exclude: 'n[[1]]'}}",
    ],
)
def test_nodes_with_an_open_bracket_are_refused(section: str) -> None:
    with pytest.raises(InputFaults, match="is not a list of nodes"):
        parse(f"cluster_type: slurm\ngpu_type: h100\nslurm: {section}\n")
    closed = section.replace("n[1-", "n[1-2]").replace("n1]", "n1").replace("n[]", "n[1]")
    parse(f"cluster_type: slurm\ngpu_type: h100\nslurm: {closed.replace('n[[1]]', '/n/list')}\n")


def test_a_gpu_type_like_another_has_its_figures_except_its_own() -> None:
    config = parse("""
        cluster_type: slurm
        gpu_type: h200
        gpu_types:
          h200: {like: h100}
          h20: {like: h100, memory_gb: 96}
          gb300: {like: gb200, gpus_per_node: 2, peak_tflops: {bf16: 2500}}
        """)
    assert (config.rows_for("h200"), config.rows_for("h100"), config.rows_for("gb300")) == (
        "h100",
        "h100",
        "gb200",
    )
    assert (config.gpu("h200").memory_gb, config.gpu("h200").peak_tflops["bf16"]) == (141, 989)
    assert config.gpu("h20").peak_tflops == known_types()["h100"].peak_tflops
    assert (config.gpu("h20").memory_gb, config.gpu("h20").gpus_per_node) == (96, 8)
    assert (config.gpu("gb300").peak_tflops, config.gpu("gb300").gpus_per_node) == (
        {"bf16": 2500},
        2,
    )


def test_a_gpu_type_of_its_own() -> None:
    config = parse("""
        cluster_type: slurm
        gpu_type: mi300x
        gpu_types:
          mi300x: {gpus_per_node: 8, peak_tflops: {bf16: 1307, fp8: 2615}, memory_gb: 192}
          l40s: {gpus_per_node: 4}
        """)
    own = GpuType(gpus_per_node=8, peak_tflops={"bf16": 1307, "fp8": 2615}, memory_gb=192)
    assert (config.gpu("mi300x"), config.rows_for("mi300x")) == (own, "mi300x")
    assert config.gpu("l40s") == GpuType(gpus_per_node=4)


BROUGHT = {"mi300x": GpuType(gpus_per_node=8, peak_tflops={"bf16": 1307}, memory_gb=192)}


def test_a_gpu_type_that_a_plugin_brings(tmp_path: Path) -> None:
    asked = list[str]()

    def types() -> dict[str, GpuType]:
        asked.append("plugins")
        return {**known_types(), **BROUGHT}

    for text in ("gpu_type: mi300x", "gpu_type: h100\ngpu_types: {mi300x: {partition: p}}"):
        config, _ = load_config(
            write(tmp_path, f"cluster_type: slurm\n{text}\n"),
            {},
            types=types,
            cluster_types=all_types,
        )
        assert config.gpu("mi300x") == BROUGHT["mi300x"]
    text = "gpu_type: x\ngpu_types: {x: {like: mi300x, memory_gb: 256}, mi300x: {gpus_per_node: 4}}"
    config, _ = load_config(
        write(tmp_path, f"cluster_type: slurm\n{text}\n"), {}, types=types, cluster_types=all_types
    )
    assert (config.rows_for("x"), config.gpu("x").memory_gb, config.gpu("x").peak_tflops) == (
        "mi300x",
        256,
        {"bf16": 1307},
    )
    assert config.gpu("mi300x").gpus_per_node == 4, "the cluster overrides the plugin"
    before = len(asked)
    text = "cluster_type: slurm\ngpu_type: h100\ngpu_types: {h200: {like: h100}}\n"
    load_config(write(tmp_path, text), {}, types=types, cluster_types=all_types)
    assert len(asked) == before, "plugins are read only for a type that llmb does not know"
    assert "types" not in typed.to_data(config)


def test_the_folder_of_experiments() -> None:
    config = parse("cluster_type: slurm\ngpu_type: h100\nllmb_install: /i\n")
    assert config.experiments("pretrain_w") == Path("/i/workloads/pretrain_w/experiments")
    elsewhere = parse(
        "cluster_type: slurm\ngpu_type: h100\nllmb_install: /i\nexperiments_root: /mine\n"
    )
    assert elsewhere.experiments("pretrain_w") == Path("/mine/pretrain_w/experiments")


def test_without_llmb_install_it_is_the_folder_of_the_file(tmp_path: Path) -> None:
    assert load(write(tmp_path))[0].llmb_install == tmp_path


def test_faults_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputFaults) as caught:
        load(write(tmp_path, "cluster_tpe: slurm\ngpu_type: h100\n"))
    assert {fault.place for fault in caught.value.faults} == {f"{tmp_path}/cluster_config.yaml:1"}
    assert caught.value.value == "cluster_tpe"


def test_the_users_file_overrides_the_clusters_with_a_note(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        cluster_type: slurm
        gpu_type: h100
        experiments_root: /shared
        slurm: {account: team, gpu: {partition: batch}}
        """,
    )
    own = tmp_path / "xdg" / "llmb" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("account: me\npartition: short\nexperiments_root: ~/runs\n")
    config, notes = load(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg"))
    assert config.slurm is not None
    assert (config.slurm.option("account"), config.slurm.option("partition")) == ("me", "short")
    assert (config.slurm.option("account", "cpu"), config.slurm.option("partition", "cpu")) == (
        "team",
        None,
    )
    assert config.experiments_root == Path.home() / "runs"
    assert notes == [f"{own} overrides cluster_config.yaml"]


def test_the_users_own_file_lies_in_the_home_folder(tmp_path: Path, home: Path) -> None:
    own = home / ".config" / "llmb" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("account: me\n")
    config, _ = load_config(write(tmp_path), {}, cluster_types=all_types)
    assert config.slurm is not None
    assert config.slurm.option("account") == "me"


def test_an_unknown_key_of_the_users_file_is_a_fault(tmp_path: Path) -> None:
    own = tmp_path / "xdg" / "llmb" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("account: me\npartion: short\n")
    with pytest.raises(InputFaults) as raised:
        load(write(tmp_path), XDG_CONFIG_HOME=str(tmp_path / "xdg"))
    (found,) = raised.value.faults
    assert (found.place, found.code, found.value) == (f"{own}:2", "key-unknown", "partion")
    assert "'partition'" in (found.hint or "")


@pytest.mark.parametrize("prefix", ["SBATCH", "SLURM"])
def test_shell_variables_override_both_files_with_notes(
    prefix: str, tmp_path: Path, wording: Callable[..., None]
) -> None:
    write(
        tmp_path,
        "cluster_type: slurm\ngpu_type: h100\nslurm: {account: team, gpu: {partition: batch, gres:"
        " 8}}\n",
    )
    own = tmp_path / "xdg" / "llmb" / "config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("account: me\n")
    variables = {
        f"{prefix}_ACCOUNT": "shell",
        f"{prefix}_PARTITION": "debug",
        f"{prefix}_GPUS_PER_NODE": "4",
    }
    config, notes = load(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "xdg"), **variables)
    assert config.slurm is not None
    assert [config.slurm.option(name) for name in ("account", "partition", "gres")] == [
        "shell",
        "debug",
        4,
    ]
    assert config.gpu("h100").gpus_per_node == 4
    assert [note.split()[0] for note in notes[1:]] == [
        f"{name}={value}" for name, value in variables.items()
    ]
    wording("config", "\n".join(notes[1:]))


def test_in_an_allocation_slurms_own_variables_are_ignored(tmp_path: Path) -> None:
    """salloc and sbatch set SLURM_GPUS_PER_NODE to what their own job asked for."""
    own = {
        "SLURM_JOB_ID": "7",
        "SLURM_GPUS_PER_NODE": "1",
        "SLURM_ACCOUNT": "other",
        "SLURM_PARTITION": "debug",
    }
    config, notes = load(write(tmp_path), **own, SBATCH_ACCOUNT="mine")
    assert config.slurm is not None
    before = load(tmp_path)[0].slurm
    assert before is not None
    assert [config.slurm.option(name) for name in ("partition", "gres")] == [
        before.option(name) for name in ("partition", "gres")
    ]
    assert [note.split()[0] for note in notes] == ["SBATCH_ACCOUNT=mine"]


def test_the_newer_spelling_wins_and_an_empty_one_is_ignored(tmp_path: Path) -> None:
    environ = {
        "SBATCH_ACCOUNT": "new",
        "SLURM_ACCOUNT": "old",
        "SBATCH_PARTITION": "",
        "SLURM_PARTITION": "older",
    }
    config, notes = load(write(tmp_path), **environ)
    assert config.slurm is not None
    assert (config.slurm.option("account"), config.slurm.option("partition")) == ("new", "older")
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("value", "gres", "per_node"), [("h100:4", "h100:4", 4), ("null", None, 8), ("²", "²", 8)]
)
def test_other_forms_of_the_gpu_count(
    value: str, gres: object, per_node: int, tmp_path: Path
) -> None:
    config, _ = load(write(tmp_path), SBATCH_GPUS_PER_NODE=value)
    assert config.slurm is not None
    assert config.slurm.option("gres") == gres
    assert config.gpu("h100").gpus_per_node == per_node


def test_shell_variables_override_a_gpu_types_options(tmp_path: Path) -> None:
    text = """
    cluster_type: slurm
    gpu_type: h100
    gpu_types: {h200: {like: h100, partition: batch2, gres: 8, gpus_per_node: 8}}
    slurm: {}
    """
    assert load(write(tmp_path, text))[0].gpu_types["h200"].partition == "batch2"
    config, _ = load(tmp_path, SBATCH_PARTITION="debug", SBATCH_GPUS_PER_NODE="4")
    assert config.gpu_types["h200"].partition is None
    assert config.gpu("h200").gpus_per_node == 4


@pytest.mark.parametrize("key", ["gpus-per-node", "gpus_per_node", "--gpus-per-node"])
def test_a_gpu_count_in_slurm_args_overrides_gres(key: str, tmp_path: Path) -> None:
    slurm = {"gpu": {"gres": 8}, "args": {key: "h100:4"}}
    config, _ = load(
        write(
            tmp_path, yaml.safe_dump({"cluster_type": "slurm", "gpu_type": "h100", "slurm": slurm})
        )
    )
    assert config.gpu("h100").gpus_per_node == 4
    config = replace(config, gpu_types={"h100": GpuTypeConfig(gpus_per_node=2)})
    assert config.gpu("h100").gpus_per_node == 2


def test_a_count_of_gpus_for_each_node_is_what_a_node_has(tmp_path: Path) -> None:
    text = "cluster_type: slurm\ngpu_type: h100\nslurm: {gpus_per_node: 4}\n"
    config, _ = load(write(tmp_path, text))
    assert (config.gpu("h100").gpus_per_node, config.requested_gpus("h100")) == (4, 4)
    config, _ = load(tmp_path, SBATCH_GPUS_PER_NODE="2")
    assert (config.gpu("h100").gpus_per_node, config.requested_gpus("h100")) == (2, 2)


def test_shell_variables_are_ignored_without_slurm(tmp_path: Path) -> None:
    folder = write(tmp_path, "cluster_type: local\ngpu_type: cpu\n")
    config, notes = load(folder, SBATCH_ACCOUNT="x", SBATCH_GPUS_PER_NODE="4")
    assert (config, notes) == load(folder)


# What each hint must name.
MISPLACED = {
    "slurm: {time: 04:00:00}": "--time-limit HH:MM:SS",
    "slurm: {time_limit: 60}": "--time-limit HH:MM:SS",
    "slurm: {nodes: 2}": "--scale N",
    "slurm: {ntasks-per-node: 8}": "--scale N",
    "slurm: {job-name: x}": "'comment' in slurm.args",
    "slurm: {output: /logs/%j}": "llmb-run jobs logs RUN",
    "slurm: {gpus-per-node: 8}": "gpus_per_node",
    "slurm: {gpus: 8}": "gpus_per_node",
    "slurm: {export: ALL}": "pass_environment",
    "slurm: {requeue: true}": "llmb-run jobs retry",
    "slurm: {array: 1-3}": "--repeats N",
    "slurm: {uid: 0}": "llmb sets it",
    "slurm: {cpus-per-task: 4}": "slurm: {args: {cpus-per-task: ...}}",
    "slurm: {mail_user: me}": "slurm: {args: {mail-user: ...}}",
    "slurm: {acount: x}": "'account'",
    "slurm: {gpu: {time: 1}}": "--time-limit HH:MM:SS",
    "slurm: {gpu: {container: none}}": "slurm: {container: ...}",
    "slurm: {args: {nodes: 2}}": "--scale N",
    "slurm: {args: {time: UNLIMITED}}": "'HH:MM:SS'",
    "slurm: {args: {time: null}}": "'HH:MM:SS'",
}


@pytest.mark.parametrize("lines", MISPLACED)
def test_a_misplaced_sbatch_option_gets_a_hint_to_its_place(lines: str) -> None:
    (found,) = faults_of(f"cluster_type: slurm\ngpu_type: h100\n{lines}\n")
    assert found.place == "c.yaml:3"
    assert found.code in ("key-unknown", "key-reserved", "value-not-allowed")
    assert MISPLACED[lines] in (found.hint or "")


@pytest.mark.parametrize(
    ("text", "limit"), [("10:00:00", 36000), ("04:00:00", 14400), ("90", 5400), ("1-0", 86400)]
)
def test_a_time_limit_of_all_jobs_in_every_form(text: str, limit: int) -> None:
    config = parse(f"cluster_type: slurm\ngpu_type: h100\nslurm: {{args: {{time: {text}}}}}\n")
    assert config.slurm is not None
    assert config.slurm.time_limit == limit
    without = parse("cluster_type: slurm\ngpu_type: h100\nslurm: {}\n")
    assert without.slurm == SlurmConfig(args={})


@pytest.mark.parametrize(
    ("variable", "args", "named"),
    [
        ("SBATCH_ACCOUNT", {"account": "mine"}, "account"),
        ("SBATCH_PARTITION", {"partition": "debug"}, "partition"),
        ("SBATCH_GPUS_PER_NODE", {"gpus-per-node": "2"}, "gpus-per-node"),
        ("SBATCH_GPUS_PER_NODE", {"gres": "gpu:2"}, "gres"),
    ],
)
def test_an_overridden_variable_is_noted_as_not_used(
    variable: str, args: dict[str, str], named: str, tmp_path: Path, wording: Callable[..., None]
) -> None:
    slurm = {"gpu": {"gres": 8}, "args": args}
    environ = {variable: "4", "XDG_CONFIG_HOME": str(tmp_path / "no-config")}
    folder = write(
        tmp_path / "args",
        yaml.safe_dump({"cluster_type": "slurm", "gpu_type": "h100", "slurm": slurm}),
    )
    plain = write(tmp_path / "plain")
    notes = [
        *load_config(folder, environ, cluster_types=all_types)[1],
        *load_config(plain, environ, args, cluster_types=all_types)[1],
        *load_config(
            plain, environ, {"comment": "x", "gpus-per-task": False}, cluster_types=all_types
        )[1],
    ]
    assert [note.split()[0] for note in notes] == [f"{variable}=4"] * 3
    assert [note.split()[-1] == named for note in notes] == [True, True, False]
    wording("config", "\n".join(notes))


@pytest.fixture
def places(tmp_path: Path) -> Mapping[str, Path]:
    """Four install directories, and a folder deep in one of them."""
    found = {name: write(tmp_path / name) for name in ("option", "variable", "above")}
    inner = write(tmp_path / "above" / "inner")
    deep = inner / "workloads" / "experiments"
    deep.mkdir(parents=True)
    return {**found, "inner": inner, "deep": deep}


def test_the_order_in_which_the_install_directory_is_found(places: Mapping[str, Path]) -> None:
    environ = {"LLMB_INSTALL": str(places["variable"])}
    assert find_install(places["option"], environ, places["deep"]) == places["option"]
    assert find_install(None, environ, places["deep"]) == places["variable"]
    assert find_install(None, {}, places["deep"]) == places["inner"]
    assert find_install(None, {"LLMB_INSTALL": ""}, places["above"]) == places["above"]


def test_relative_folders_start_at_the_current_folder(places: Mapping[str, Path]) -> None:
    assert find_install(Path("../option"), {}, places["above"]) == places["option"]
    assert find_install(None, {"LLMB_INSTALL": "inner"}, places["above"]) == places["inner"]


def test_the_home_folder_may_be_written_short(home: Path) -> None:
    write(home / "llmb")
    assert find_install(None, {"LLMB_INSTALL": "~/llmb"}, Path("/")) == home / "llmb"


@pytest.mark.parametrize(
    ("option", "environ", "source"),
    [
        (Path("gone"), {}, "--install"),
        (None, {"LLMB_INSTALL": "gone"}, "LLMB_INSTALL"),
        (None, {}, ""),
    ],
)
def test_a_missing_install_directory_is_an_error_with_a_hint(
    option: Path | None,
    environ: dict[str, str],
    source: str,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    with pytest.raises(UsageError) as caught:
        find_install(option, environ, tmp_path)
    assert (caught.value.code, caught.value.key) == ("install-missing", source)
    assert str(caught.value.value) == (str(tmp_path / "gone") if source else "None")
    wording("config", describe(caught.value))


@pytest.mark.parametrize("option", [True, False])
def test_an_installation_that_has_not_finished_is_named_with_the_way_to_continue(
    option: bool, tmp_path: Path
) -> None:
    record.mark_unfinished(tmp_path, {"HOME": str(tmp_path)})
    inside = tmp_path / "venvs"
    inside.mkdir()
    with pytest.raises(UsageError) as caught:
        find_install(tmp_path if option else None, {}, inside)
    assert caught.value.code == "install-unfinished"
    assert f"llmb-install --install {tmp_path} --yes" in str(caught.value.hint)


@pytest.mark.parametrize("where", ["deep", "option"])
def test_the_old_stage_path_is_an_error_that_names_the_new_one(
    where: str, places: Mapping[str, Path]
) -> None:
    with pytest.raises(UsageError) as caught:
        find_install(None, {"STAGE_PATH": str(places["option"])}, places[where])
    assert caught.value.code == "stage-path"
    assert "LLMB_INSTALL" in (caught.value.hint or "")


def test_the_old_stage_path_is_an_error_even_with_the_new_one(places: Mapping[str, Path]) -> None:
    environ = {"STAGE_PATH": "/old", "LLMB_INSTALL": str(places["variable"])}
    for option in (None, places["option"]):
        with pytest.raises(UsageError) as caught:
            find_install(option, environ, places["deep"])
        assert caught.value.code == "stage-path"


def test_the_known_types() -> None:
    assert {"h100", "b200", "gb200", "a100", "cpu"} <= set(known_types())
    peaks = {name: kind.peak_tflops for name, kind in known_types().items()}
    assert peaks["h100"] == {"bf16": 989, "fp8": 1979}
    assert peaks["b200"] == {"bf16": 2250, "fp8": 4500, "mxfp8": 4500, "nvfp4": 9000}
    assert peaks["b300"] == peaks["b200"] | {"nvfp4": 13500}
    assert peaks["gb200"] == {"bf16": 2450, "fp8": 4900, "mxfp8": 4900, "nvfp4": 9800}
    assert peaks["gb300"] == peaks["gb200"] | {"nvfp4": 14700}
    assert peaks["a100"] == {"bf16": 312}
    assert peaks["h200"] == peaks["h100"], "the same die, with more memory"
    kinds = [
        known_types()[name] for name in ("a100", "h100", "h200", "b200", "b300", "gb200", "gb300")
    ]
    assert [kind.gpus_per_node for kind in kinds] == [8, 8, 8, 8, 8, 4, 4]
    assert [kind.memory_gb for kind in kinds] == [80, 80, 141, 180, 270, 186, 279]


def test_the_peak_of_each_way_in_which_fp8_scales() -> None:
    gpu = GpuType(
        gpus_per_node=8, peak_tflops={"fp8": 2.0, "mxfp8": 3.0, "nvfp4": 4.0, "bf16": 1.0}
    )
    spelled = ("fp8_cs", "fp8_sc", "fp8_mx", "mxfp8", "nvfp4", "bf16", "fp32")
    peaks = [peak_at(gpu, name) for name in spelled]
    assert peaks == [2.0, 2.0, 3.0, 3.0, 4.0, 1.0, None]
    assert peak_at(None, "bf16") is None


def test_of_two_spellings_of_a_workload_its_key_wins() -> None:
    own, other = WorkloadConfig(venv_path=Path("/own")), WorkloadConfig(venv_path=Path("/other"))
    both = WorkloadsConfig(config={"nemotron4": other, "pretrain_nemotron4": own})
    assert both.of("pretrain_nemotron4") == own
    assert WorkloadsConfig(config={"Nemotron-4": other}).of("pretrain_nemotron4") == other
    assert both.of("pretrain_llama3.1") == WorkloadConfig()
