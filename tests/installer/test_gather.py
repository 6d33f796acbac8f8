# SPDX-License-Identifier: Apache-2.0
"""Tests of the layers of answers: the example files, options that override them, missing keys
without a terminal.
"""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from llmb.builtin.slurm.partitions import read
from llmb.contract.spec import Workload
from llmb.errors import InputFaults, UsageError, as_fault
from llmb.plan.read_config import NEWER
from llmb_installer import gather
from llmb_installer.answers.read import read_answers
from llmb_installer.detect import scheduler
from llmb_installer.detect.detected import Detected
from llmb_installer.detect.machine import find_machine
from llmb_installer.detect.scheduler import COMMANDS, NodeFound, SlurmFound
from llmb_installer.gather import read_layers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Install = Callable[..., "subprocess.CompletedProcess[str]"]
SLURM = SlurmFound(
    cluster="big",
    commands=COMMANDS,
    accounting=True,
    accounts=("team", "other"),
    partitions=read("batch*|up|infinite|1-infinite|4|idle|gpu:h100:8|n[1-4]|none\n"),
    nodes=(NodeFound(name="n1", architecture="x86_64", partitions=("batch",)),),
)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm cluster without pyxis, instead of the one here."""
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: SLURM)


@pytest.mark.parametrize(
    ("name", "kind"), [("local", "local"), ("slurm", "slurm"), ("runai", "runai")]
)
def test_the_examples_are_answers(name: str, kind: str, workloads: dict[str, Workload]) -> None:
    answers = read_answers(read_layers(EXAMPLES / f"{name}.yaml"), workloads=workloads)
    assert answers.cluster_type == kind


def test_options_override_the_file(workloads: dict[str, Workload], tmp_path: Path) -> None:
    settings = [
        "slurm.account=mine",
        "versions.torch=2.10",
        "workloads=[llama3.1]",
        "slurm.mpi=",
        "install=/elsewhere",
    ]
    answers = read_answers(
        read_layers(EXAMPLES / "slurm.yaml", tmp_path, settings), workloads=workloads
    )
    assert answers.slurm is not None
    assert (answers.slurm.account, answers.slurm.mpi) == ("mine", None)
    assert answers.slurm.option("partition") == "batch", "the keys next to it stay"
    assert (answers.versions.torch.text, answers.workloads) == ("2.10", ("pretrain_llama3.1",))
    assert answers.install == tmp_path


@pytest.mark.parametrize("setting", ["account", "=x"])
def test_an_invalid_setting(setting: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_layers(None, None, [setting])
    assert (caught.value.code, caught.value.key, caught.value.value) == (
        "setting-invalid",
        "--set",
        setting,
    )


def test_an_unknown_key_in_a_setting_has_its_option_as_place(
    workloads: dict[str, Workload],
) -> None:
    with pytest.raises(InputFaults) as caught:
        read_answers(
            read_layers(EXAMPLES / "slurm.yaml", None, ["slurm.acount=x"]), workloads=workloads
        )
    assert [fault.place for fault in caught.value.faults] == ["--set slurm.acount"]


def test_without_a_terminal_all_missing_keys_are_named(
    run_install: Install, wording: Callable[..., None]
) -> None:
    done = run_install("--set", "cluster_type=runai")
    assert (done.returncode, done.stdout) == (2, "")
    wording("llmb-install", done.stderr)


def test_runais_variables_are_answers_without_a_terminal(
    run_install: Install, tmp_path: Path
) -> None:
    """The variables that NVIDIA's page on Nemotron4 tells its users to export, with values of the
    same form.
    """
    named = {
        "BASE_URL": "https://nvidia.run.ai/api/v1",
        "APP_ID": "llmb-qa",
        "APP_SECRET": "x",
        "PROJECT_NAME": "llmb-testing",
        "PVC_DIR": f"{tmp_path}/nemo-run",
        "CUSTOM_MOUNT": f"workspace:{tmp_path}:nemo2-workspace-project-hprdj",
    }
    answers = tmp_path / "answers.yaml"
    given = ("cluster_type=runai", "gpu_type=h100", "workloads=pretrain_nemotron4")
    words = [word for text in given for word in ("--set", text)]
    done = run_install(*words, "--dry-run", "--record", answers, **named)
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load(answers.read_text())
    assert written["install"] == f"{tmp_path}/nemo-run/llmb"
    assert written["runai"] == {
        "base_url": "https://nvidia.run.ai/api/v1",
        "project": "llmb-testing",
        "app_id": "llmb-qa",
        "pvc": {
            "name": "workspace",
            "path": str(tmp_path),
            "claim": "nemo2-workspace-project-hprdj",
        },
    }
    assert "runai.pvc from CUSTOM_MOUNT" in done.stderr, "the sources are named"


def test_settings_override_the_variables(
    run_install: Install, tmp_path: Path, wording: Callable[..., None]
) -> None:
    settings = (
        "cluster_type=runai",
        "gpu_type=h100",
        "runai.project=mine",
        f"install={tmp_path}/llmb",
    )
    options = [word for setting in settings for word in ("--set", setting)]
    named = {
        "BASE_URL": "http://h",
        "PROJECT_NAME": "theirs",
        "CUSTOM_MOUNT": "w:/w:c",
        "PVC_DIR": "/w",
    }
    done = run_install(*options, "--dry-run", **named)
    assert done.returncode == 2
    assert "error: BASE_URL: runai.base_url:" in done.stderr
    assert "runai.project" not in done.stderr
    done = run_install(
        *options, "--dry-run", **{**named, "BASE_URL": "https://h/api/v1", "CUSTOM_MOUNT": "w:c"}
    )
    assert done.returncode == 2
    wording("llmb-install", done.stderr)


def test_a_duplicate_key_hides_no_other_fault(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(
        "cluster_type: local\ninstall: /x\ncluster_name: a\ngpu_type: h1000\ncluster_name: b\n"
    )
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, ("method=srun",), terminal=False, dry_run=True)
    places = [fault.place for fault in caught.value.faults]
    assert places == [f"{path}:5", f"{path}:4", "--set method"]


def test_a_faulty_file_is_reported_before_the_first_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a terminal too: no answer to a question could fix it."""
    monkeypatch.setattr("llmb_installer.wizard.conversation.ask", None)
    path = tmp_path / "answers.yaml"
    path.write_text("gpu_typ: h100\nworkloads: [lama]\n")
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, (), terminal=True, dry_run=True)
    assert [fault.place for fault in caught.value.faults] == [f"{path}:1", f"{path}:2"]


@pytest.mark.parametrize("given", ["", "gpu_type: h100\nnode_architecture: x86_64\n"])
def test_an_unknown_partition_has_file_and_line(tmp_path: Path, slurm: None, given: str) -> None:
    """Also where GPU type and architecture would be detected in that partition."""
    path = tmp_path / "answers.yaml"
    path.write_text(
        f"cluster_type: slurm\ninstall: {tmp_path}/x\nslurm:\n  gpu:\n    partition: bacth\n{given}"
    )
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, (), terminal=False, dry_run=True)
    (fault,) = caught.value.faults
    assert (fault.place, fault.code, fault.value) == (
        f"{path}:5: slurm.gpu.partition",
        "partition-unknown",
        "bacth",
    )
    with pytest.raises(InputFaults) as caught:
        gather.gather(path, None, ("slurm.gpu.partition=btch",), terminal=False, dry_run=True)
    assert [(fault.place, fault.value) for fault in caught.value.faults] == [
        ("--set slurm.gpu.partition", "btch")
    ]
    found = gather.gather(path, None, ("slurm.gpu.partition=batch",), terminal=False, dry_run=True)
    assert isinstance(found, gather.Gathered)
    assert any("--container-image" in note for note in found.notes)


def test_all_faults_are_reported_at_once(
    tmp_path: Path, slurm: None, capsys: pytest.CaptureFixture[str], wording: Callable[..., None]
) -> None:
    """Also those from comparing with the cluster, where another key or a workload is wrong."""
    path = tmp_path / "answers.yaml"
    path.write_text(
        f"cluster_type: slurm\ninstall: {tmp_path}/x\ngpu_type: h100\nnode_architecture: x86_64\n"
        "slurm:\n  account: teem\n  qoss: high\n"
    )
    with pytest.raises(InputFaults) as caught:
        gather.gather(
            path,
            None,
            ("slurm.gpu.partition=btch", "workloads=[lama3.1]"),
            terminal=False,
            dry_run=True,
        )
    places = [fault.place for fault in caught.value.faults]
    assert sorted(places) == ["--set slurm.gpu.partition", "--set workloads", f"{path}:7"]
    wording("llmb-install", capsys.readouterr().err)


def test_given_answers_are_compared_with_the_cluster_before_the_first_question(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the cluster type itself is not given."""
    here = Detected(home=home, cwd=tmp_path, machine=find_machine(), slurm=SLURM)
    monkeypatch.setattr("llmb_installer.detect.detected.detect", lambda *_: here)
    monkeypatch.setattr("llmb_installer.wizard.conversation.ask", None)
    given = ("slurm.gpu.partition=btch", "slurm.account=teem")
    with pytest.raises(InputFaults) as caught:
        gather.gather(None, None, given, terminal=True, dry_run=True)
    assert [(fault.place, fault.value) for fault in caught.value.faults] == [
        ("--set slurm.gpu.partition", "btch")
    ]
    assert "note: slurm.account: 'teem'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("schema_version: 3\ncluster_type: local\ngpu_type: cpu\nnew: 1\n", NEWER),
        ("cluster_type: local\ngpu_typ: cpu\n", "key-unknown"),
        ("- a\n", "value-type"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named_before_missing_answers(
    text: str, code: str, tmp_path: Path
) -> None:
    (tmp_path / "cluster_config.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        gather.gather(None, tmp_path, [], terminal=False, dry_run=True)
    faults = (
        caught.value.faults if isinstance(caught.value, InputFaults) else [as_fault(caught.value)]
    )
    assert code in [fault.code for fault in faults]
    assert all(str(tmp_path) in str(fault) for fault in faults)


def test_a_configuration_of_a_later_release_is_not_repaired(
    run_install: Install, tmp_path: Path
) -> None:
    path = tmp_path / "cluster_config.yaml"
    path.write_text("schema_version: 3\ncluster_type: local\ngpu_type: cpu\nnew: 1\n")
    for words in (
        ["verify"],
        ["verify", "--repair", "--yes"],
        ["status"],
        ["add", "nemotron4", "--yes"],
    ):
        done = run_install(*words, "--install", tmp_path)
        assert done.returncode in (1, 2)
        assert "schema_version" in done.stderr
        assert "--repair" not in done.stderr
    assert "new: 1" in path.read_text()


ON_SLURM = {"cluster_type": "slurm", "gpu_type": "h100", "node_architecture": "x86_64"}


def test_containers_are_the_default_only_where_slurm_has_pyxis(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording: Callable[..., None]
) -> None:
    """What is detected is recorded; what the answers say is never changed, nor what cannot be
    detected.
    """
    found = SLURM
    monkeypatch.setattr(scheduler, "find_slurm", lambda **_: found)
    path = tmp_path / "answers.yaml"

    def container(**slurm: str) -> tuple[str, list[str]]:
        data = {
            **ON_SLURM,
            "install": str(tmp_path / "llmb"),
            "slurm": {"gpu": {"gres": 8}, **slurm},
        }
        path.write_text(yaml.safe_dump(data))
        gathered = gather.gather(path, None, (), terminal=False, dry_run=True)
        assert isinstance(gathered, gather.Gathered)
        recorded = gathered.intent.asked.slurm
        assert recorded is not None
        assert gathered.intent.site.container == (recorded.container == "pyxis")
        return recorded.container, [note for note in gathered.notes if "slurm.container" in note]

    chosen, notes = container()
    assert chosen == "none"
    wording("llmb-install", "\n".join(notes))
    assert container(container="none") == ("none", [])
    assert container(container="pyxis")[0] == "pyxis"
    found = replace(SLURM, pyxis=True)
    assert container() == ("pyxis", [])
    found = replace(SLURM, fault="Slurm does not answer")
    assert container() == ("pyxis", [])
