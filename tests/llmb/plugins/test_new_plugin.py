# SPDX-License-Identifier: Apache-2.0
"""Tests the way of a plugin's author: write a new one, install it, check it, run it; and what the check finds."""

import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.errors import UsageError
from llmb.plugins.scaffold import plain_name, scaffold
from llmb.system.files import write_folder
from llmb.workload.spec import read_workload

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    """Makes the plugin in a folder one that Python finds, as `pip install -e` does; its source."""

    def install(folder: Path) -> str:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
        ((name, module),) = project["entry-points"]["llmb"].items()
        (info / "entry_points.txt").write_text(f"[llmb]\n{name} = {module}\n")
        monkeypatch.setenv("PYTHONPATH", str(folder))
        return f"{project['name']}:{name}"

    return install


def test_a_new_plugin_is_installed_checked_and_planned(
    llmb_run: Command, installed: Callable[[Path], str], cluster: Cluster, tmp_path: Path
) -> None:
    done = llmb_run("plugins", "new", "Acme-2b")
    assert (done.returncode, done.stdout.split()) == (
        0,
        ["acme-2b/pyproject.toml", "acme-2b/llmb_acme_2b/__init__.py", "acme-2b/llmb_acme_2b/workload.yaml"],
    )
    assert "pip install -e ./acme-2b" in done.stderr
    assert "llmb-install add acme-2b --yes" in done.stderr
    source = installed(tmp_path / "acme-2b")
    assert llmb_run("plugins", "check").returncode == 0
    rows = json.loads(llmb_run("plugins", "--format", "json").stdout)
    assert {"plugin": source, "status": "ok", "workload": "pretrain_acme-2b", "reason": ""} in rows
    for kind, gpu, words in (("local", "cpu", ("-s", "tiny", "--scale", "1")), ("slurm", "h100", ("--scale", "8"))):
        place = cluster(kind, gpu, name=kind)
        done = llmb_run("single", "-w", "acme2b", *words, "-d", "--format", "json", "--install", place)
        (job,) = json.loads(done.stdout)["jobs"]
        assert (job["workload"], job["gpu_type"]) == ("pretrain_acme-2b", gpu)
        assert job["script"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a b", "'a b' cannot be the name of a workload"),
        ("../x", "cannot be the name of a workload"),
        ("pretrain_", "cannot be the name of a workload"),
        ("Nemotron_4", "llmb-nemotron4:nemotron4 offers pretrain_nemotron4 already"),
        ("there", "there is there already"),
    ],
)
def test_what_cannot_be_a_new_plugin(name: str, message: str, llmb_run: Command, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    done = llmb_run("plugins", "new", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {message}" in done.stderr or message in done.stderr
    assert "hint: " in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["there"]


def test_a_folder_of_ones_choice(llmb_run: Command, tmp_path: Path) -> None:
    done = llmb_run("plugins", "new", "pretrain_acme", tmp_path / "own" / "place")
    assert done.returncode == 0
    assert read_workload(tmp_path / "own/place/llmb_acme/workload.yaml").key == "pretrain_acme"


@pytest.mark.parametrize("name", ["acme", "Acme.2", "pretraining_acme", "a-b_c.d"])
def test_names_that_can_be(name: str) -> None:
    files = scaffold(plain_name(name))
    (entry,) = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]["llmb"].items()
    assert f"{entry[1]}/workload.yaml" in files
    with pytest.raises(UsageError):
        plain_name(f"{name}-")


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        ("gbs: 16N", "gbs: 12", 12, "rows.0: pretrain_acme 1b at 8 GPUs: the global batch 12 is not", "mend the row"),
        ("gbs: 16N", "gbs: N/3", 12, "rows.0: pretrain_acme 1b at 16 GPUs: the global batch N/3 is", "mend the row"),
        ("gpu: h100", "gpu: h10", 12, "sizes.1b.rows.0.gpu: no GPU type is called 'h10'", "did you mean 'h100'?"),
        (
            "default_dtype: bf16",
            "default_dtype: fp8",
            5,
            "default_dtype: the default size 1b has no row for 'fp8'",
            "one of bf16",
        ),
        ("default_size: 1b", "default_size: 2b", 4, "default_size: '2b' is not one of its sizes", "did you mean '1b'?"),
        ("image: nvcr.io/", "image: nvcr.io ", 6, "image: 'nvcr.io nvidia/nemo:25.04.01' is not an image", "until"),
        (", mbs: 1, gbs", ", mbs: 0, gbs", 12, "rows.0.mbs: 'mbs' must be 1 or more, not 0", "until then plugin "),
        ("dtype: fp32", "dtype: fp23", 17, "rows.0: llmb's programs know no dtype 'fp23'", "did you mean 'fp32'?"),
        ("layers: 2", "layer: 2", 14, "sizes.tiny.model.layer: 'layer' is not a key here", "did you mean 'layers'?"),
        (", mbs: 2, gbs: 4N", ", tp: 2, mbs: 2, gbs: 4N", 17, "its program is data parallel only, tp·pp·cp is", "give"),
        ("    nemo: {", "    # {", 12, "rows.0: no program of llmb runs it at 64 GPUs", "give the size a 'nemo' reci"),
        ("tecture: llama, layers: 2", "tecture: lama, layers: 2", 17, "builds no architecture 'lama'", "did you mean"),
        ("kv_groups: 8", "kv_group: 8", 9, "'kv_group' is not a key here", "did you mean 'kv_groups'?"),
        ("title: A", "file: x.yaml\ntitle: A", 3, "file: 'file' is not a key here", "until then plugin "),
    ],
)
def test_the_check_finds_what_would_only_fail_later(
    old: str,
    new: str,
    line: int,
    message: str,
    hint: str,
    llmb_run: Command,
    installed: Callable[[Path], str],
    tmp_path: Path,
) -> None:
    write_folder(tmp_path / "acme", scaffold("acme"))
    table = tmp_path / "acme/llmb_acme/workload.yaml"
    table.write_text(table.read_text("utf-8").replace(old, new, 1))
    installed(tmp_path / "acme")
    done = llmb_run("plugins", "check")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {table}:{line}: " in done.stderr
    assert message in done.stderr
    assert f"\nhint: {hint}" in done.stderr


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {'name': 'x'}", "TypeError: it gives {'name': 'x'}, not a Launch"),
        ("raise KeyError('scratch')", "KeyError: 'scratch'"),
    ],
)
def test_the_check_asks_a_launch_of_its_own(
    body: str, message: str, llmb_run: Command, installed: Callable[[Path], str], tmp_path: Path
) -> None:
    llmb_run("plugins", "new", "acme")
    module = tmp_path / "acme/llmb_acme/__init__.py"
    module.write_text(module.read_text("utf-8") + f"\n\n@api.hookimpl\ndef llmb_launch(job):\n    {body}\n")
    source = installed(tmp_path / "acme")
    done = llmb_run("plugins", "check")
    assert done.returncode == 1
    assert f"error: {source}: plugin {source} failed in llmb_launch: {message}" in done.stderr
