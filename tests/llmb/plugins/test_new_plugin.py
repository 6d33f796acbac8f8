# SPDX-License-Identifier: Apache-2.0
"""Tests the steps of a plugin author: write a new plugin, install it, check it, run it; and what
the check finds.
"""

import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.check.scaffold import KINDS, LONGEST, PARTS, Names, check_new, plain_name, scaffold
from llmb.contract.spec import read_workload
from llmb.core.files import write_folder
from llmb.errors import UsageError
from llmb.plugins.sources import OWN_DISTRIBUTIONS

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Cluster = Callable[..., Path]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str]:
    """Makes the plugin in a folder importable with its metadata, as `pip install -e` does; returns
    its source.
    """

    def install(folder: Path) -> str:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n"
        )
        ((name, module),) = project["entry-points"]["llmb"].items()
        (info / "entry_points.txt").write_text(f"[llmb]\n{name} = {module}\n")
        monkeypatch.setenv("PYTHONPATH", str(folder))
        return f"{project['name']}:{name}"

    return install


def test_a_new_plugin_is_installed_checked_and_planned(
    llmb_run: Command,
    installed: Callable[[Path], str],
    cluster: Cluster,
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    done = llmb_run("plugins", "new", "Acme-2b")
    paths = [
        "README.md",
        "llmb_acme_2b/__init__.py",
        "llmb_acme_2b/sample_log.txt",
        "llmb_acme_2b/workload.yaml",
    ]
    paths += ["pyproject.toml", "tests/test_acme_2b.py"]
    assert (done.returncode, done.stdout.split()) == (0, [f"acme-2b/{path}" for path in paths])
    wording("plugins new", done.stderr)
    source = installed(tmp_path / "acme-2b")
    assert llmb_run("plugins", "check").returncode == 0
    rows = json.loads(llmb_run("plugins", "--format", "json").stdout)
    (row,) = [row for row in rows if row["plugin"] == source]
    assert (
        row.items()
        >= {
            "status": "ok",
            "workload": "pretrain_acme-2b",
            "contract": "1.0",
            "reason": "",
        }.items()
    )
    for kind, gpu, words in (
        ("local", "cpu", ("-s", "tiny", "--scale", "1")),
        ("slurm", "h100", ("--scale", "8")),
    ):
        place = cluster(kind, gpu, name=kind)
        done = llmb_run(
            "single", "-w", "acme2b", *words, "-d", "--format", "json", "--install", place
        )
        (job,) = json.loads(done.stdout)["jobs"]
        assert (job["workload"], job["gpu_type"]) == ("pretrain_acme-2b", gpu)
        assert job["script"]
    # with NeMo's end-of-document token the 128,256 of the model
    assert re.search(r'"vocab_size": *128255\b', job["script"])


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("a b", "'a b'"),
        ("../x", "'../x'"),
        ("pretrain_", "'pretrain_'"),
        ("Nemotron_4", "llmb-nemotron4:nemotron4"),
        ("present", "present already exists"),
    ],
)
def test_invalid_or_used_names_of_a_new_plugin(
    name: str, about: str, llmb_run: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    (tmp_path / "present").mkdir()
    done = llmb_run("plugins", "new", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert about in done.stderr
    wording("plugins new", done.stderr)
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["present"]


@pytest.mark.parametrize(
    ("kind", "name"), [("cluster", "slurm"), ("command", "jobs"), ("program", "microbench")]
)
def test_names_that_llmb_has(
    kind: str, name: str, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    done = llmb_here("plugins", "new", name, tmp_path / "new", "--kind", kind)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (tmp_path / "new").exists()
    wording("plugins new", done.stderr)


def distributions_of_llmb() -> list[str]:
    root = Path(__file__).parents[3]
    files = [
        *root.glob("pyproject.toml"),
        *root.glob("*/pyproject.toml"),
        *root.glob("plugins/*/pyproject.toml"),
    ]
    names = (tomllib.loads(file.read_text("utf-8"))["project"]["name"] for file in files)
    return sorted(name for name in names if name.startswith("llmb"))  # as each new plugin's does


def test_the_names_of_llmbs_distributions_are_known() -> None:
    """Also of those that are not installed here."""
    assert distributions_of_llmb() == sorted(OWN_DISTRIBUTIONS | PARTS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", [name.removeprefix("llmb-") for name in distributions_of_llmb() if name != "llmb"]
)
def test_a_new_plugin_never_replaces_a_part_of_llmb(name: str, kind: str) -> None:
    for spelling in (name, name.replace("-", "_")):
        with pytest.raises(UsageError) as caught:
            check_new(Names(plain=spelling, kind=kind))
        assert (caught.value.code, caught.value.value) == ("name-duplicate", spelling)


@pytest.mark.parametrize("taken", ["distribution", "module"])
def test_a_new_plugin_never_replaces_what_is_installed(
    taken: str,
    llmb_here: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    if taken == "module":
        (site / "llmb_acme_2b").mkdir(parents=True)
        (site / "llmb_acme_2b/__init__.py").touch()
    else:
        (site / "llmb_acme_2b-1.dist-info").mkdir(parents=True)
        (site / "llmb_acme_2b-1.dist-info/METADATA").write_text(
            "Metadata-Version: 2.1\nName: llmb-acme-2b\nVersion: 1\n"
        )
    for name in ("acme-2b", "Acme_2b", "acme.2b"):
        done = llmb_here("plugins", "new", name, tmp_path / "new", "--kind", "command")
        assert (done.returncode, done.stdout, (tmp_path / "new").exists()) == (2, "", False)
    wording("plugins new", done.stderr)


def test_the_longest_name_of_a_new_plugin(
    llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    for kind in KINDS:
        assert (
            llmb_here("plugins", "new", "a" * LONGEST, tmp_path / kind, "--kind", kind).returncode
            == 0
        )
    done = llmb_here("plugins", "new", "a" * 300, tmp_path / "long")
    assert (done.returncode, done.stdout) == (2, "")
    wording("plugins new", done.stderr)


@pytest.mark.parametrize("kind", KINDS)
def test_what_to_do_next(
    kind: str, llmb_here: Command, tmp_path: Path, wording: Callable[..., None]
) -> None:
    done = llmb_here("plugins", "new", "acme.2", tmp_path / "new", "--kind", kind)
    assert done.returncode == 0
    assert done.stdout.split() == [
        str(tmp_path / "new" / path) for path in scaffold("acme.2", kind)
    ]
    wording("plugins new", done.stderr)


def test_a_chosen_folder(llmb_run: Command, tmp_path: Path) -> None:
    done = llmb_run("plugins", "new", "pretrain_acme", tmp_path / "own" / "place")
    assert done.returncode == 0
    assert read_workload(tmp_path / "own/place/llmb_acme/workload.yaml").key == "pretrain_acme"


@pytest.mark.parametrize("name", ["acme", "Acme.2", "pretraining_acme", "a-b_c.d"])
def test_valid_names(name: str) -> None:
    files = scaffold(plain_name(name))
    (entry,) = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]["llmb"].items()
    assert f"{entry[1]}/workload.yaml" in files
    with pytest.raises(UsageError):
        plain_name(f"{name}-")


@pytest.mark.parametrize(
    ("old", "new", "line", "key"),
    [
        ("gbs: 16N", "gbs: 12", 12, "sizes.1b.rows.0"),
        ("gbs: 16N", "gbs: N/3", 12, "sizes.1b.rows.0"),
        ("gpu: h100", "gpu: h10", 12, "sizes.1b.rows.0.gpu"),
        ("default_dtype: bf16", "default_dtype: fp8", 5, "default_dtype"),
        ("default_size: 1b", "default_size: 2b", 4, "default_size"),
        ("image: nvcr.io/", "image: nvcr.io ", 6, "image"),
        (", mbs: 1, gbs", ", mbs: 0, gbs", 12, "sizes.1b.rows.0.mbs"),
        ("dtype: fp32", "dtype: fp23", 17, "sizes.tiny.rows.0"),
        ("layers: 2", "layer: 2", 14, "sizes.tiny.model.layer"),
        (", mbs: 2, gbs: 4N", ", tp: 2, mbs: 2, gbs: 4N", 17, "sizes.tiny.rows.0"),
        ("    nemo: {", "    # {", 12, "sizes.1b.rows.0"),
        ("tecture: llama, layers: 2", "tecture: lama, layers: 2", 17, "sizes.tiny.rows.0"),
        ("kv_groups: 8", "kv_group: 8", 9, "sizes.1b.model.kv_group"),
        ("title: A", "file: x.yaml\ntitle: A", 3, "file"),
    ],
)
def test_the_check_finds_faults_of_a_table(
    old: str,
    new: str,
    line: int,
    key: str,
    llmb_run: Command,
    installed: Callable[[Path], str],
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    write_folder(tmp_path / "acme", scaffold("acme"))
    table = tmp_path / "acme/llmb_acme/workload.yaml"
    table.write_text(table.read_text("utf-8").replace(old, new, 1))
    installed(tmp_path / "acme")
    done = llmb_run("plugins", "check")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{table}:{line}: {key}:" in done.stderr
    wording("plugins check", done.stderr)


@pytest.mark.parametrize(
    ("vocab", "is_noted"), [("", False), (", vocab: 128255", False), (", vocab: 128256", True)]
)
def test_a_tokenizer_with_other_tokens_than_the_model_is_noted(
    vocab: str, is_noted: bool, llmb_run: Command, tmp_path: Path
) -> None:
    write_folder(tmp_path / "acme", scaffold("acme"))
    table = tmp_path / "acme/llmb_acme/workload.yaml"
    name = "flops_name: llama3"
    table.write_text(table.read_text("utf-8").replace(name, f"{name}{vocab}"))
    done = llmb_run("plugins", "check", tmp_path / "acme")
    assert (done.returncode, done.stdout) == (0, "1 plugin checked, no faults\n")
    assert (f"{table}:11: sizes.1b.nemo.vocab" in done.stderr) == is_noted
    assert ("128257" in done.stderr) == is_noted


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return {'name': 'x'}", "not a Launch"),
        ("raise KeyError('scratch')", "KeyError: 'scratch'"),
    ],
)
def test_the_check_calls_the_plugins_own_launch(
    body: str,
    error: str,
    llmb_run: Command,
    installed: Callable[[Path], str],
    tmp_path: Path,
    wording: Callable[..., None],
) -> None:
    llmb_run("plugins", "new", "acme")
    module = tmp_path / "acme/llmb_acme/__init__.py"
    module.write_text(
        module.read_text("utf-8") + f"\n\n@api.hookimpl\ndef llmb_launch(job):\n    {body}\n"
    )
    source = installed(tmp_path / "acme")
    done = llmb_run("plugins", "check")
    assert done.returncode == 1
    assert all(part in done.stderr for part in (source, "llmb_launch", error))
    wording("plugins check", done.stderr)
