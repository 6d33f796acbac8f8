# SPDX-License-Identifier: Apache-2.0
"""An installation of exemplar-performance becomes one of llmb: settings, secrets, images, and its
folder unchanged.
"""

import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llmb.errors import UsageError
from llmb.plan.config_layers import load_config
from llmb_exemplar.names import image_file
from llmb_installer.cluster_types import all_types
from llmb_installer.importing import carry
from llmb_installer.importing.carry import ImportPlan
from llmb_installer.record import load_layered_config
from llmb_testing import exemplar_folder as exemplar
from sqshpull.record import check, read_record

DoImport = Callable[..., ImportPlan]


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of the last change and content of everything below a folder."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        own = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (own.st_mode, own.st_mtime_ns, content)
    return found


# One of each form that its 22 tagged releases from 25.05 to 26.08.00 write.
@pytest.mark.parametrize(
    "release", ["25.05", "25.05.04", "25.07", "25.08", "25.08.01", "25.12", "26.02", "26.08"]
)
def test_settings_of_every_release(release: str, tmp_path: Path, do_import: DoImport) -> None:
    """The values that its installer asked for are in llmb's keys; the secret is not."""
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, release)
    plan = do_import(folder)
    config, _ = load_config(plan.target, {}, cluster_types=all_types)
    assert (config.cluster_type, config.gpu_type) == ("slurm", "h100")
    assert config.cluster_name == ("cluster" if release < "25.05.04" else "alpha")
    assert config.slurm is not None
    assert (config.slurm.account, config.slurm.container) == ("team", "pyxis")
    assert (config.slurm.option("partition"), config.slurm.option("gres")) == ("batch", 8)
    assert (config.slurm.option("partition", "cpu"), config.slurm.option("gres", "cpu")) == (
        "cpu",
        None,
    )
    assert dict(config.environment) == {"NCCL_DEBUG": "WARN"}
    assert config.install.method == ("slurm" if release >= "25.08.01" else "local")
    assert config.workloads.installed == ()
    assert plan.workloads == exemplar.KEYS[:2]
    left = [(item.kind, item.code) for item in plan.items if item.action == "leave"]
    assert sorted(left) == [
        *[("environment", "venv-not-used")] * 3,
        ("secret", "secret-consent"),
        ("workload", "workload-not-offered"),
    ]


def test_a_gres_that_was_lost_is_not_taken_for_none(tmp_path: Path, do_import: DoImport) -> None:
    """Releases of 2026 write null where they update a file of 2025, whose key gpu_gres they do not
    read.
    """
    folder = tmp_path / "theirs"
    slurm = {
        "account": "team",
        "gpu": {"partition": "batch", "gres": None},
        "cpu": {"partition": "cpu", "gres": None},
    }
    exemplar.write_config(folder, "26.02", slurm=slurm)
    plan = do_import(folder)
    config, _ = load_config(plan.target, {}, cluster_types=all_types)
    assert config.slurm is not None
    assert config.slurm.leaves_gpus_open
    assert config.slurm.option("partition") == "batch"
    assert [item.name for item in plan.items if item.code == "gres-missing"] == ["slurm.gpu.gres"]


def test_grace_nodes_are_arm_and_unusual_variables_are_named(
    tmp_path: Path, do_import: DoImport
) -> None:
    folder = tmp_path / "theirs"
    environment = {"DEBUG": True, "PATH": "/x", "SLURM_X": 1, "NOTE": exemplar.TOKEN, "EMPTY": None}
    data = yaml.safe_load(
        exemplar.write_config(folder, "25.08", environment=environment).read_text()
    )
    data["launcher"]["gpu_type"] = "GB200"
    data["slurm"]["switch"] = "x"
    (folder / "cluster_config.yaml").write_text(yaml.safe_dump(data))
    plan = do_import(folder)
    config, _ = load_config(plan.target, {}, cluster_types=all_types)
    assert (config.gpu_type, config.install.node_architecture) == ("gb200", "aarch64")
    assert dict(config.environment) == {"DEBUG": "true"}
    codes = {item.name: item.code for item in plan.items if item.action == "leave"}
    assert (codes["PATH"], codes["SLURM_X"]) == ("variable-refused", "variable-refused")
    assert (codes["NOTE"], codes["slurm.switch"]) == ("variable-secret", "key-unknown")
    assert codes["EMPTY"] == "variable-without-value"


@pytest.mark.parametrize("consent", [False, True])
def test_secrets_go_only_where_the_user_agrees(
    consent: bool, source: Path, home: Path, do_import: DoImport
) -> None:
    plan = do_import(source, with_secrets=consent)
    files = [path for path in plan.target.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert not [path for path in files if exemplar.TOKEN.encode() in path.read_bytes()]
    assert exemplar.TOKEN not in repr(plan.items)
    kept = home / ".config/llmb/secrets"
    assert kept.exists() == consent
    if consent:
        assert kept.read_text() == f"HF_TOKEN={exemplar.TOKEN}\n"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        again = do_import(source, with_secrets=True)
        assert again.changes_nothing
        assert {item.code for item in again.items if item.kind == "secret"} == {"secret-present"}


def test_images_are_linked_with_their_digest(source: Path, do_import: DoImport) -> None:
    plan = do_import(source)
    images = {path.name: path for path in (plan.target / "images").glob("*.sqsh")}
    assert {*images} == {"nvidia+nemo+25.04.01.sqsh", "special.sqsh"}
    image = images["nvidia+nemo+25.04.01.sqsh"]
    original = source / "images" / image.name
    assert image.is_symlink()
    assert image.resolve() == original
    facts = read_record(image)
    assert facts is not None
    assert (facts.reference, facts.adopted) == ("nvcr.io/nvidia/nemo:25.04.01", True)
    assert facts.sha256 == hashlib.sha256(original.read_bytes()).hexdigest()
    assert check(image, deep=True) is None
    codes = {item.name: item.code for item in plan.items if item.kind == "image"}
    assert codes["nvidia+nemo+26.02.01.sqsh"] == "image-cut-off"
    assert not [path for path in (source / "images").iterdir() if path.suffix == ".json"]


@pytest.mark.parametrize(
    ("reference", "name"),
    [  # the rule of its installer's _generate_image_filename
        ("nvcr.io#nvidia/nemo:26.06.01", "nvidia+nemo+26.06.01.sqsh"),
        ("nvcr.io/nvidia/nemo", "nvidia+nemo+latest.sqsh"),
        ("nvcr.io/a/b/c:1", "b+c+1.sqsh"),
        ("nvcr.io#nvidia/nemo:sha256:0123456789abcdef", "nvidia+nemo+sha256-0123456789ab.sqsh"),
    ],
)
def test_file_names_of_its_images(reference: str, name: str) -> None:
    assert image_file(reference) == name


def test_a_shared_image_folder(tmp_path: Path, do_import: DoImport) -> None:
    """Its installer links each image of a shared folder into its own; llmb links the file
    itself.
    """
    folder, shared = tmp_path / "theirs", tmp_path / "shared"
    exemplar.write_config(folder, "26.02", install={"image_folder": str(shared)})
    file = exemplar.write_image(shared / "nvidia+nemo+26.02.01.sqsh")
    (folder / "images").mkdir()
    (folder / "images" / file.name).symlink_to(file)
    plan = do_import(folder, checksums=False)
    link = plan.target / "images" / file.name
    assert link.readlink() == file
    assert read_record(link) is None


@pytest.mark.parametrize(
    ("tags", "framework", "release"),
    [
        (["26.06"], "bridge", None),  # without rows of its own
        (["26.06.01"], "bridge", "26.06.01"),
        (["26.02.01", "26.08"], "bridge", "26.08"),
        (["25.04.01"], "nemo", None),
        (["25.04.01", "26.02.01"], "both", "26.02.01"),
        (["25.11"], None, None),  # it contains NeMo and a Megatron-Bridge without rows
    ],
)
def test_the_framework_of_its_images_is_kept(
    tags: list[str], framework: str | None, release: str | None, tmp_path: Path, do_import: DoImport
) -> None:
    folder = tmp_path / "theirs"
    exemplar.write_config(folder, "26.08")
    for tag in tags:
        exemplar.write_image(folder / "images" / f"nvidia+nemo+{tag}.sqsh")
    install = load_layered_config(do_import(folder, checksums=False).target).install
    assert (install.framework, install.bridge_release) == (framework, release)


def test_the_folder_is_not_changed_and_a_second_import_does_nothing(
    source: Path, do_import: DoImport
) -> None:
    before = snapshot(source)
    planned = do_import(source, dry_run=True)
    assert not planned.target.exists()
    first = do_import(source)
    taken = snapshot(first.target)
    again = do_import(source)
    assert snapshot(source) == before
    assert again.changes_nothing
    assert not [item for item in again.items if item.action == "take"]
    assert {path: own[0::2] for path, own in snapshot(first.target).items()} == {
        path: own[0::2] for path, own in taken.items()
    }


def test_an_interrupted_import_continues(
    source: Path, do_import: DoImport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is written last: with it, the folder is an install directory."""
    with monkeypatch.context() as patched:
        patched.setattr(carry, "link_image", interrupt)
        with pytest.raises(KeyboardInterrupt):
            do_import(source)
    target = source.with_name("theirs-llmb")
    assert not (target / "cluster_config.yaml").exists()
    plan = do_import(source)
    assert (len(plan.runs), len(plan.images), plan.config is None) == (0, 2, False)
    assert do_import(source).changes_nothing


def interrupt(*_: object, **__: object) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("into", [".", "images", "workloads/x"])
def test_never_into_its_own_folder(into: str, source: Path, do_import: DoImport) -> None:
    with pytest.raises(UsageError) as raised:
        do_import(source, into=source / into)
    assert raised.value.code == "import-into-source"


def test_folders_that_are_refused(
    tmp_path: Path, cluster: Callable[..., Path], do_import: DoImport
) -> None:
    ours, empty, other = cluster("slurm"), tmp_path / "empty", tmp_path / "other"
    empty.mkdir()
    (other / "things").mkdir(parents=True)
    theirs = tmp_path / "theirs"
    exemplar.write_config(theirs, "25.12")
    for folder, into, code in (
        (ours, None, "import-own"),
        (empty, None, "import-nothing"),
        (tmp_path / "gone", None, "import-nothing"),
        (theirs, other, "import-into-other"),
    ):
        with pytest.raises(UsageError) as raised:
            do_import(folder, into)
        assert raised.value.code == code
    for kind in ("h10", None):
        exemplar.write_config(theirs, "26.05", gpu_type=kind)
        with pytest.raises(UsageError) as raised:
            do_import(theirs)
        assert raised.value.code == ("gpu-type-unknown" if kind else "gpu-type-missing")
        assert str(theirs) in raised.value.message
        assert "--gpu-type" in (raised.value.hint or "")
    with pytest.raises(UsageError) as raised:
        do_import(theirs, gpu_type="h10")
    assert str(theirs) not in raised.value.message
    assert do_import(theirs, gpu_type="h200").config is not None


@pytest.mark.parametrize("words", [["import", "{}", "--yes"], ["--help"]])
def test_a_reader_that_has_gone_does_not_end_the_command(
    words: list[str], tmp_path: Path, command: str
) -> None:
    """As ``| head -2`` does. Half of the import, or none of it, would be worse than no output."""
    theirs = tmp_path / "theirs"
    exemplar.write_config(theirs, "25.12")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [command, *(word.format(theirs) for word in words)],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    is_made = (tmp_path / "theirs-llmb" / "cluster_config.yaml").exists()
    assert is_made == (words[0] == "import")


def test_into_an_install_directory_of_llmb(
    source: Path, cluster: Callable[..., Path], do_import: DoImport
) -> None:
    """Its configuration stays; runs and images are added."""
    ours = cluster("slurm", "b200")
    text = (ours / "cluster_config.yaml").read_text()
    plan = do_import(source, into=ours)
    assert (ours / "cluster_config.yaml").read_text() == text
    assert (len(plan.runs), len(plan.images)) == (5, 2)


def test_stage_path_of_releases_before_25_05(tmp_path: Path, do_import: DoImport) -> None:
    """They have no configuration: images and results are in one folder, and the GPU type is
    given.
    """
    folder = tmp_path / "stage"
    exemplar.write_image(folder / "nvidia+nemo+24.12.sqsh")
    place = folder / "results/25.01/fp8/340b/128"
    place.mkdir(parents=True)
    log = place / "log-nemo_nemotron4_340b_128_389757.out"
    bar = "Epoch 0: : 100%|##| {0}/100 [07:57<00:00, reduced_train_loss=7.310, global_step={1}.00, "
    bar += "consumed_samples={2}.0, train_step_timing in s=3.160]"
    log.write_text("\r".join(bar.format(n + 1, n, 32 * (n + 1)) for n in range(100)) + "\n")
    os.utime(log, (1_750_000_000,) * 2)
    with pytest.raises(UsageError) as raised:
        do_import(folder)
    assert raised.value.code == "gpu-type-missing"
    plan = do_import(folder, gpu_type="h100")
    assert [run.record.job.model_size for run in plan.runs] == ["340b"]
    assert (
        json.loads((plan.runs[0].record.directory / "llmb-run.json").read_text())["origin"][
            "release"
        ]
        is None
    )
    assert (plan.target / "images/nvidia+nemo+24.12.sqsh").is_symlink()
