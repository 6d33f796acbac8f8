# SPDX-License-Identifier: Apache-2.0
"""Tests of archives: the same results as where they were made, no secrets, no names on request,
damage is found.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from hypothesis import given, strategies as st

from llmb.builtin.plugins import builtin_plugins
from llmb.cli.context import CliContext
from llmb.contract.state import JobState
from llmb.core.node_lists import expand
from llmb.core.secret_patterns import SECRET
from llmb.errors import LlmbError
from llmb.plugins.loader import load_plugins
from llmb.show.archive.contents import MANIFEST
from llmb.show.archive.names import sites_of
from llmb.show.archive.redact import anonymous, redaction
from llmb.show.archive.tar_file import _Names, check_seal, unpack

NO_PLUGINS = load_plugins(builtin_plugins(), entries=())
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def rows(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return [{key: value for key, value in row.items() if key != "path"} for row in found]


def members(path: Path) -> dict[str, bytes]:
    """Every file of an archive, read without llmb."""
    with (
        path.open("rb") as raw,
        zstandard.ZstdDecompressor().stream_reader(raw) as unpacked,
        tarfile.open(fileobj=unpacked, mode="r|") as tar,
    ):
        return {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]


@pytest.fixture
def archive(install: Any, run: Run, tmp_path: Path) -> Path:
    """An archive of three runs, one of them failed."""
    install.measured("good1", 2.70)
    install.measured("good2", 2.80, "llama31_8b", "fp8", 8)
    install.run("bad1", install.job("nemotron4_15b", "bf16", 16), "boom\n", "FAILED")
    path = tmp_path / "night.tar.zst"
    assert run("archive", "-o", path).returncode == 0
    return path


def test_results_of_an_archive_are_those_of_its_runs(
    archive: Path, install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    before = run("results", "--format", "json")
    compared = run("compare", "--format", "json")
    install.folder.rename(tmp_path / "gone")
    after = llmb_here("results", archive, "--format", "json")
    assert (rows(after), after.returncode) == (rows(before), before.returncode)
    assert len(rows(after)) == 3
    assert json.loads(llmb_here("compare", archive, "--format", "json").stdout) == json.loads(
        compared.stdout
    )
    page = tmp_path / "page.html"
    llmb_here("report", archive, "-o", page)
    assert all(run_id in page.read_text() for run_id in ("good1", "good2", "bad1"))
    (one,) = rows(llmb_here("results", archive, "good1", "--format", "json"))
    assert one["run"] == "good1"


def test_two_archives_are_compared(
    archive: Path, install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    install.measured("later", 1.35)
    other = tmp_path / "other.tar.zst"
    run("archive", "later", "-o", other)
    compared = json.loads(llmb_here("compare", other, archive, "--format", "json").stdout)[
        "comparisons"
    ]
    (row,) = [row for row in compared if row["ratio"] is not None]
    assert row["ratio"] == pytest.approx(2.0)


def test_an_archive_goes_into_a_folder_that_exists(install: Any, run: Run, tmp_path: Path) -> None:
    install.measured("a1", 2.75)
    done = run("archive", "-o", tmp_path / "no" / "night.tar.zst")
    assert done.returncode == 2
    assert f"mkdir -p {tmp_path / 'no'}" in done.stderr
    assert not (tmp_path / "no").exists()


def test_no_command_that_writes_is_named_for_an_archive(
    install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    """Nothing is published for it: where it was measured, a baseline would keep it; an archive is
    read-only.
    """
    install.measured("tiny1", 0.5, "nemotron4_tiny", "fp32", 2)
    path = tmp_path / "night.tar.zst"
    assert run("archive", "-o", path).returncode == 0
    for command in ("results", "report"):
        here, there = run(command), llmb_here(command, path)
        assert "baseline accept" in here.stdout + here.stderr, command
        assert (there.returncode, "baseline accept" in there.stdout + there.stderr) == (0, False), (
            command
        )
        assert "no verdicts" in there.stdout + there.stderr


def test_an_archive_asks_no_cluster_and_reads_no_settings_of_its_reader(
    archive: Path, install: Any, llmb_here: Run, home: Path
) -> None:
    shutil.rmtree(install.folder)
    own = home / ".config/llmb/config.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("experiments_root: /elsewhere\n")
    done = llmb_here("results", archive, "--format", "json")
    assert len(rows(done)) == 3
    assert "config.yaml" not in done.stderr


def test_every_file_is_in_the_manifest_with_its_checksum(archive: Path, install: Any) -> None:
    found = members(archive)
    manifest = json.loads(found.pop("llmb-archive.json"))
    assert manifest["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in found.items()
    }
    assert manifest["runs"] == 3
    assert sum(name.endswith("/llmb-run.json") for name in found) == 3
    assert "cluster_config.yaml" in found


def test_profiles_weights_and_binaries_are_listed_and_not_in_it(
    install: Any, run: Run, tmp_path: Path
) -> None:
    made = install.measured("good1", 2.70)
    for name in ("nsys_profile/profile_1.nsys-rep", "checkpoints/step50/weights.distcp", "core.17"):
        path = made.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0" * 1000)
    for name in ("state.lock.7", "requirements.lock.txt"):  # llmb's own, and a file of the program
        (made.work / name).write_text("x")
    run("archive", "-o", tmp_path / "a.tar.zst")
    found = members(tmp_path / "a.tar.zst")
    assert [name.rpartition("/")[2] for name in found if ".lock." in name] == [
        "requirements.lock.txt"
    ]
    omitted = json.loads(found["llmb-archive.json"])["omitted"]
    reasons = {
        name.rpartition("/")[2]: (own["bytes"], own["reason"]) for name, own in omitted.items()
    }
    assert reasons == {
        "nsys_profile": (1000, "profile"),
        "checkpoints": (1000, "checkpoint"),
        "core.17": (1000, "not a text"),
    }
    assert not any(b"\0" in data for data in found.values())


def omitted_in(path: Path) -> dict[str, str]:
    """Why each file is omitted, by its last part."""
    omitted = json.loads(members(path)["llmb-archive.json"])["omitted"]
    return {name.rpartition("/")[2]: own["reason"] for name, own in omitted.items()}


def test_a_log_that_is_a_link_is_in_it_and_other_links_are_listed(
    install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    """Imported runs have links to the original logs."""
    before = []
    for name, suffix in (("plain", ""), ("packed", ".gz")):
        made = install.measured(name, 2.70)
        before += rows(run("results", name, "--format", "json"))
        original = tmp_path / f"{name}.out{suffix}"
        original.write_bytes(
            gzip.compress(made.log.read_bytes()) if suffix else made.log.read_bytes()
        )
        made.log.unlink()
        made.log.symlink_to(original)
    made.batch_log.symlink_to(tmp_path / "gone.out")
    (made.work / "dataset").symlink_to(tmp_path)
    (made.work / "notes").symlink_to(original)
    os.mkfifo(made.work / "pipe")
    archive = tmp_path / "a.tar.zst"
    done = run("archive", "-o", archive)
    shutil.rmtree(install.folder)
    after = rows(llmb_here("results", archive, "--format", "json"))
    assert {row["run"]: row["time_mean_seconds"] for row in after} == {
        row["run"]: row["time_mean_seconds"] for row in before
    }
    expected = {
        made.batch_log.name: "unreadable",
        "dataset": "link",
        "notes": "link",
        "pipe": "not a file",
    }
    assert omitted_in(archive) == expected
    assert all(reason in done.stdout + done.stderr for reason in expected.values())


def test_what_cannot_be_read_is_listed(install: Any, llmb_program: str, tmp_path: Path) -> None:
    made = install.measured("good1", 2.70)
    (made.work / "hidden").mkdir()
    for path in (made.work / "hidden", made.batch_log):
        path.touch()
        path.chmod(0)
    powerless = (
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] if os.geteuid() == 0 else []
    )
    program = [llmb_program, "archive", "--install", install.folder, "-o", tmp_path / "a"]
    done = subprocess.run([*powerless, *program], capture_output=True, text=True, check=False)
    (made.work / "hidden").chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert omitted_in(tmp_path / "a.tar.zst") == {
        "hidden": "unreadable",
        made.batch_log.name: "unreadable",
    }


def test_a_damaged_and_a_very_large_gzip(
    install: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmb.show.archive.contents.MOST", 1 << 20)
    made = install.measured("good1", 2.70)
    packed = gzip.compress(os.urandom(5000).hex().encode(), mtime=0)
    damaged = packed + packed[:10] + b"\xff" * 100  # a block of no known type
    with pytest.raises(zlib.error):
        gzip.decompress(damaged)
    (made.work / "bad.gz").write_bytes(damaged)
    (made.work / "half.gz").write_bytes(packed[:2000])
    (made.work / "wrong.gz").write_bytes(packed[:-8] + bytes(8))
    (made.work / "big.gz").write_bytes(gzip.compress(b"x" * (1 << 20) + b"y"))
    (made.work / "fits.gz").write_bytes(gzip.compress(b"x" * (1 << 20)))
    run("archive", "-o", tmp_path / "a.tar.zst")
    damages = dict.fromkeys(("bad.gz", "half.gz", "wrong.gz"), "damaged")
    assert omitted_in(tmp_path / "a.tar.zst") == {**damages, "big.gz": "larger than 256 MiB"}


def test_a_user_without_a_name(
    install: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 123456)
    install.measured("good1", 2.70)
    assert run("archive", "--anonymous", "-o", tmp_path / "a.tar.zst").returncode == 0


def test_secrets_are_not_in_it(
    install: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NGC_API_KEY", "known-here-0123456789")
    made = install.measured("good1", 2.70)
    text = made.log.read_text()
    lines = (
        "HF_TOKEN=hf_abcdefghijklmnopqrstuv",
        "key known-here-0123456789",
        "pulled https://me:pa55word@host/x",
    )
    made.log.write_text("\n".join([*lines, text]))
    with gzip.open(made.work / "log-older.out.gz", "wt") as packed:
        packed.write("WANDB_API_KEY: 0123456789abcdef\n")
    run("archive", "-o", tmp_path / "a.tar.zst")
    found = members(tmp_path / "a.tar.zst")
    data = b"".join(
        gzip.decompress(data) if name.endswith(".gz") else data for name, data in found.items()
    )
    for secret in (b"hf_abcdef", b"known-here", b"pa55word", b"0123456789abcdef"):
        assert secret not in data
    assert json.loads(found["llmb-archive.json"])["secrets"] == 4


def test_names_are_not_in_it_on_request(
    install: Any, run: Run, llmb_here: Run, home: Path, tmp_path: Path
) -> None:
    made = install.measured("good1", 2.70)
    log = made.log.read_text()
    nccl = "gpu-node07:12:34 [0] NCCL INFO Using network IB\n"
    (made.directory / "scheduler_id").write_text(
        "8\ncluster moonbase\nnodes big[101-102],fat9\nhost login\n"
    )
    made.batch_log.write_text(
        "srun: error: big102: task 3\nslurmstepd-fat9: error: on big[101-102]\n"
    )
    made.log.write_text(f"{nccl}nodes gpu-node[07-09] of {install.folder} for {home}\n{log}")
    before = rows(run("results", "--format", "json"))
    run("archive", "--anonymous", "-o", tmp_path / "a.tar.zst")
    found = members(tmp_path / "a.tar.zst")
    every = b"".join([*found.values(), *(name.encode() for name in found)])
    for name in (
        str(install.folder),
        str(home),
        socket.gethostname(),
        "gpu-node07",
        "gpu-node[",
        "moonbase",
        "big1",
        "big[",
        "fat9",
        Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    ):
        assert name.encode() not in every, name
    after = rows(llmb_here("results", tmp_path / "a.tar.zst", "--format", "json"))
    assert [row["ratio"] for row in after] == [row["ratio"] for row in before]
    (host,) = after[0]["log"]["hosts"]
    assert host.startswith("host")


def test_what_only_logs_name_is_not_in_it_on_request(
    install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    made = install.measured("good1", 2.70)
    lines = [
        "gpu17:4321:4321 [0] NCCL INFO Bootstrap : Using eth0:10.31.7.17<0>",
        "MASTER_ADDR=gpu18.corp.example.com",
        "down: gpu18 gpu19.corp.example.com 10.31.7.17 2a02:c0::17",
        "data in /home/bob/x, /lustre/proj/bob and /gpfs/users/eve; bobsled",
        "nvidia-cudnn-cu12==9.1.0.70",
    ]
    made.log.write_text("\n".join([*lines, made.log.read_text()]))
    done = run("archive", "--anonymous", "-o", tmp_path / "a.tar.zst")
    (log,) = [
        text.decode()
        for name, text in members(tmp_path / "a.tar.zst").items()
        if name.endswith(made.log.name)
    ]
    for name in ("gpu17", "gpu18", "corp.example", "10.31.7", "2a02:", "/bob", "eve"):
        assert name not in log, name
    assert log.count("198.18.0.1") == 2
    assert "bobsled" in log
    assert lines[-1] in log
    assert len(rows(llmb_here("results", tmp_path / "a.tar.zst", "--format", "json"))) == 1
    assert done.returncode == 0


def test_files_whose_names_become_the_same_are_all_in_it(
    install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    made = install.measured("good1", 2.70)
    names = ("gpu17.txt", "GPU17.txt", "gpu17/a.log.gz", "gpu17.corp.example.com/a.log.gz")
    for name in names:
        path = made.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b"1") if name.endswith(".gz") else b"1")
    made.log.write_text("MASTER_ADDR=gpu17.corp.example.com\n" + made.log.read_text())
    path = tmp_path / "a.tar.zst"
    assert run("archive", "--anonymous", "-o", path).returncode == 0
    work = f"/{made.work.name}/"
    found = {name.rpartition(work)[2]: data for name, data in members(path).items()}
    twice = [name for name in found if name.startswith("host")]
    assert [name.partition(".")[2] for name in twice].count("txt") == 2
    assert len(twice) == 4, twice
    assert sum(name.endswith("/a.log.gz") for name in twice) == 2
    assert len(rows(llmb_here("results", path, "--format", "json"))) == 1


def test_each_file_of_an_archive_has_a_name_of_its_own() -> None:
    new_names = {"a/b": "x/y/z", "c/d": "x/y/z", "e.json": MANIFEST}
    replaced: Any = SimpleNamespace(in_path=new_names.__getitem__)
    names = _Names(replaced)
    assert [names.of(name) for name in new_names] == ["x/y/z", "x/y/z-2", "llmb-archive-2.json"]
    assert names.of("a/b") == "x/y/z"


def test_a_user_is_replaced_in_texts_and_folders_of_a_run(
    install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    made = install.measured("good1", 2.70)
    (made.work / "bob9").mkdir()
    (made.work / "bob9" / "t.log").write_text("/home/bob9/x /home/workloads/x /home/ann7/x\n")
    (made.work / "ann7").write_text("a file of this name\n")
    path = tmp_path / "a.tar.zst"
    done = run("archive", "--anonymous", "-o", path)
    found = members(path)
    assert b"bob9" not in b"".join([*found.values(), *(name.encode() for name in found)])
    (warning,) = [line for line in done.stderr.splitlines() if "not replaced" in line]
    kept = warning.rpartition(": ")[2].split(", ")
    assert {"ann7", "workloads"} <= {*kept}
    assert "bob9" not in kept
    assert len(rows(llmb_here("results", path, "--format", "json"))) == 1


def test_paths_in_an_archive_begin_with_its_name(archive: Path, llmb_here: Run) -> None:
    page = llmb_here("jobs", "show", archive, "good1").stdout
    data = json.loads(llmb_here("jobs", "show", archive, "good1", "--format", "json").stdout)
    explained = llmb_here("explain", archive, "good1").stdout
    assert f"{archive}:workloads/" in explained
    log = llmb_here("jobs", "logs", archive, "good1", "--path").stdout
    results = json.loads(llmb_here("results", archive, "--format", "json").stdout)["results"]
    report = llmb_here("report", archive, "--format", "html").stdout
    assert f"{archive}:workloads/" in page
    for path in (
        data["directory"],
        data["log"],
        data["script"],
        log,
        *(row["path"] for row in results),
    ):
        assert path.startswith(f"{archive}:workloads/")
    for text in (page, explained, log, report):
        assert "/archives/" not in text


def test_an_archive_is_unpacked_once_and_removed_when_it_is_not_used(
    archive: Path, install: Any, run: Run, llmb_here: Run, home: Path, tmp_path: Path
) -> None:
    shutil.rmtree(install.folder)
    before = llmb_here("results", archive, "--format", "json")
    (folder,) = (home / ".cache/llmb/archives").iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    for log in folder.rglob("log-*.out"):
        log.unlink()
    # not unpacked again, nor its logs read
    later = llmb_here("results", archive, "--format", "json")
    assert [row["time_mean_seconds"] for row in rows(later)] == [
        row["time_mean_seconds"] for row in rows(before)
    ]
    other = tmp_path / "other.tar.zst"
    assert llmb_here("archive", "good2", "-o", other, "--install", archive).returncode == 0
    os.utime(folder, (0, 0))
    assert len(rows(llmb_here("results", other, "--format", "json"))) == 1
    (kept,) = (home / ".cache/llmb/archives").iterdir()
    assert kept != folder


def test_where_no_archive_can_be_unpacked(
    archive: Path, llmb_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(archive))
    done = llmb_here("results", archive)
    assert (done.returncode, "XDG_CACHE_HOME" in done.stderr) == (1, True)


def test_a_run_of_an_archive_is_retried_where_it_ran(
    install: Any, run: Run, llmb_here: Run, tmp_path: Path
) -> None:
    install.run("gone1", install.job("nemotron4_15b", "bf16", 16), "", JobState(state="PREEMPTED"))
    path = tmp_path / "a.tar.zst"
    assert run("archive", "-o", path).returncode == 0
    assert "where it ran" not in run("explain", "gone1").stdout
    for words in (["explain", path, "gone1"], ["report", path]):
        shown = llmb_here(*words).stdout
        assert re.search(r"(?i)where it ran: llmb-run jobs retry(?! --install)", shown), words


def test_names_of_sites_and_lists_of_hosts(make_install: Any) -> None:
    assert [*expand("n[01-03,7],login,a[1-2]b[3-4]")] == [
        "n01",
        "n02",
        "n03",
        "n7",
        "login",
        "a1b3",
        "a1b4",
        "a2b3",
        "a2b4",
    ]
    made = make_install(
        slurm={"account": "projectx", "gpu": {"qos": "fast", "gres": 8}}, cluster_name="moon"
    )
    run = made.measured("r1", 2.7)
    run = replace(
        run, cluster="site", launch=replace(run.launch, slurm_args={"reservation": "night"})
    )
    sites = {
        "moon": "cluster1",
        "site": "cluster2",
        "projectx": "account1",
        "fast": "qos1",
        "night": "reservation1",
        run.submitter.boot: "boot1",
    }
    assert sites_of(made.config, [run]) == sites


def test_an_account_that_is_a_key_of_our_files_is_kept_and_named(
    make_install: Any, llmb_here: Run, tmp_path: Path
) -> None:
    made = make_install(slurm={"account": "training"})
    made.measured("r1", 2.7)
    done = llmb_here(
        "archive", "--anonymous", "-o", tmp_path / "a.tar.zst", "--install", made.folder
    )
    assert "training" in done.stderr
    assert len(rows(llmb_here("results", tmp_path / "a.tar.zst", "--format", "json"))) == 1


def test_words_that_files_need_are_no_names() -> None:
    names = anonymous(
        {"root", "ana"},
        {"localhost", "n1.site.org"},
        {Path("/"): "x", Path("/home/ana"): "/h"},
        {"slurm": "cluster1"},
    )
    assert names == {
        "/home/ana": "/h",
        "ana": "user1",
        "n1": "host2",
        "n1.site.org": "host2",
        "site.org": "domain1",
    }
    own = redaction([], names)
    assert own.apply("ana banana n1 n12 /home/ana/x")[0] == "user1 banana host2 n12 /h/x"


NAMES = {
    "n1": "host1",
    "n12": "host2",
    "n1-ib0": "host3",
    "n1.site.org": "host1",
    "ana": "user1",
    "/a/llmb": "/llmb",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1 n12 n123", "host1 host2 n123"),  # whole words, the longest
        ("n1-ib0 n1-ib n1.site.org. n1.site.or", "host3 host1-ib host1. host1.site.or"),
        ("N1,Ana=ANA banana ana_x", "host1,user1=user1 banana ana_x"),
        ("\x1b[32mn1\x1b[0m \x1b[0;1mn12", "\x1b[32mhost1\x1b[0m \x1b[0;1mhost2"),
        ("/a/llmb/x /b/a/llmb /a/llmbs", "/llmb/x /b/a/llmb /a/llmbs"),
        ("on n[1,12] and x[1-2] N[1-2]", "on host[1-2] and x[1-2] host1,host"),
    ],
)
def test_the_longest_name_is_replaced_and_no_part_of_a_word(text: str, expected: str) -> None:
    assert redaction([], NAMES).apply(text)[0] == expected


@given(
    st.sets(st.from_regex(r"[ab][ab.-]{0,3}[0-2]?", fullmatch=True), max_size=8),
    st.text("ab012.- ,_", max_size=40),
)
def test_names_are_replaced_as_one_by_one_the_longest_first(names: set[str], text: str) -> None:
    marks = {name: f"<{chr(0x4E00 + number)}>" for number, name in enumerate(sorted(names))}
    expected = text
    for name in sorted(names, key=len, reverse=True):
        expected = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", marks[name], expected)
    found = redaction([], marks).apply(text)[0]
    # From left to right, not by length: the same but where two names share a part of the text.
    assert (found == text) == (expected == text)
    assert len(names) > 1 or found == expected


def test_thousands_of_names_take_one_pattern() -> None:
    hosts = [f"gpu{number:05}" for number in range(5000)]
    own = redaction([], anonymous(set(), hosts, {}, {}))
    text = " ".join(hosts)
    assert own.apply(text)[0] == " ".join(f"host{number}" for number in range(1, 5001))
    assert own.apply("gpu[00000-04999],gpu")[0] == "host[1-5000],gpu"


@pytest.fixture
def in_archive(archive: Path, install: Any, llmb_here: Run) -> Run:
    """Runs llmb-run on an archive in the place of the install directory, which is gone."""
    shutil.rmtree(install.folder)
    return lambda *words: llmb_here(*words, "--install", archive)


@pytest.mark.parametrize(
    "words",
    [
        ["results"],
        ["compare"],
        ["compare", "--scaling"],
        ["report"],
        ["explain", "good1"],
        ["jobs"],
        ["jobs", "list"],
        ["jobs", "show", "good1"],
        ["jobs", "show", "good1", "--script"],
        ["jobs", "logs", "good1"],
        ["jobs", "logs", "good1", "--path"],
        ["baseline", "list"],
        ["config"],
    ],
)
def test_every_reading_command_takes_one(words: list[str], in_archive: Run) -> None:
    done = in_archive(*words)
    # runs by hand have no script
    assert done.returncode in (0, 1 if "--script" in words else 3), done.stderr
    assert done.stdout or words[0] in ("baseline", "jobs", "compare")


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "cancel", "good1"],
        ["jobs", "retry", "bad1"],
        ["jobs", "reconcile"],
        ["jobs", "wait"],
        ["baseline", "accept", "x"],
        ["single", "-w", "nemotron4", "-s", "15b", "--dtype", "bf16", "--scale", "16"],
        ["list"],
    ],
)
def test_no_command_that_writes_takes_one(words: list[str], in_archive: Run, archive: Path) -> None:
    before = archive.read_bytes()
    done = in_archive(*words)
    if words != ["list"]:  # which needs no install directory
        assert done.returncode == 2
        assert "archive" in done.stderr.splitlines()[0]
    assert archive.read_bytes() == before


def test_an_archive_in_the_first_place(
    archive: Path, llmb_here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "iteration 49/49" in llmb_here("jobs", "logs", archive, "good1").stdout
    explained = llmb_here("explain", archive, "good1")
    assert "good1" in explained.stdout
    shown = json.loads(llmb_here("jobs", "show", archive, "good1", "--format", "json").stdout)
    assert shown["id"] == "good1"
    assert llmb_here("explain", archive).returncode == 2  # of three runs
    assert llmb_here("jobs", "show", "a", "b").returncode == 2
    monkeypatch.setenv("LLMB_INSTALL", str(archive))
    assert len(rows(llmb_here("results", "--format", "json"))) == 3
    assert llmb_here("jobs", "cancel", "--all").returncode == 2


def test_a_baseline_in_an_archive(install: Any, run: Run, llmb_here: Run, tmp_path: Path) -> None:
    install.measured("good1", 2.70)
    run("baseline", "accept", "april")
    install.measured("later", 3.0)
    run("archive", "-o", tmp_path / "a.tar.zst")
    shutil.rmtree(install.folder)
    (kept,) = json.loads(
        llmb_here("baseline", "list", tmp_path / "a.tar.zst", "--format", "json").stdout
    )
    assert (kept["name"], kept["file"].partition(":")[0]) == ("april", str(tmp_path / "a.tar.zst"))
    assert llmb_here("baseline", "list", "april").returncode == 2
    for words in (["compare", tmp_path / "a.tar.zst"], ["report", tmp_path / "a.tar.zst"]):
        done = llmb_here(*words, "--baseline", "april")
        assert done.returncode == 3
        assert "0.900" in done.stdout


def test_an_archive_is_no_command(archive: Path, llmb_here: Run) -> None:
    done = llmb_here("jobs", archive)
    assert done.returncode == 2
    assert f"llmb-run jobs --install {archive}" in done.stderr


def test_hints_name_the_archive(archive: Path, llmb_here: Run) -> None:
    done = llmb_here("jobs", "show", archive, "good1")
    assert f"llmb-run explain --install {archive} good1" in done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"HF_TOKEN": "abcdef123"', f'"HF_TOKEN": "{SECRET}"'),
        ("export APP_SECRET='abcdef123'", f"export APP_SECRET='{SECRET}'"),
        ("Authorization: Bearer abcdef123.x", f"Authorization: Bearer {SECRET}"),
        ("docker login -u me -p 12345678", f"docker login -u me -p {SECRET}"),
        ("app --password 12345678", f"app --password {SECRET}"),
        ("tokens: 123456789", "tokens: 123456789"),
        ("HF_TOKEN=$HF_TOKEN", "HF_TOKEN=$HF_TOKEN"),
        ("max_token = 8192000", "max_token = 8192000"),
    ],
)
def test_what_a_secret_looks_like(text: str, expected: str) -> None:
    assert redaction([]).apply(text)[0] == expected


def _packed(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return zstandard.compress(raw.getvalue())


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"no archive", "archive-damaged"),
        (_packed({"x": b""}), "archive-damaged"),
        (_packed({"../x": b"outside"}), "archive-damaged"),
        (_packed({"a/../../x": b"outside"}), "archive-damaged"),
        (_packed({f"{Path.cwd()}/x": b"outside"}), "archive-damaged"),
        (_packed({".": b"the folder itself"}), "archive-damaged"),
        (_packed({"x\0y": b"no name of a file"}), "archive-damaged"),
        (
            _packed({"llmb-archive.json": b'{"schema_version": 2, "llmb_version": "9"}'}),
            "archive-version",
        ),
    ],
)
def test_a_file_that_is_no_archive(content: bytes, code: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "a.tar.zst", tmp_path / "folder"
    path.write_bytes(content)
    folder.mkdir()
    with pytest.raises(LlmbError) as raised:
        unpack(path, folder)
    assert raised.value.code == code
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_only_regular_files_are_unpacked(kind: bytes, tmp_path: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, str(tmp_path)
        tar.addfile(member)
        member = tarfile.TarInfo("link/x")
        tar.addfile(member)
    (tmp_path / "a.tar.zst").write_bytes(zstandard.compress(raw.getvalue()))
    (tmp_path / "folder").mkdir()
    with pytest.raises(LlmbError, match="link does not belong in an archive of llmb"):
        unpack(tmp_path / "a.tar.zst", tmp_path / "folder")
    assert not any((tmp_path / "folder").iterdir())


def test_an_archive_is_read_by_every_python(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2, which Debian 12 has, has no filters for tar files."""
    for name in [name for name in vars(tarfile) if name.endswith("_filter")]:
        monkeypatch.delattr(tarfile, name)
    (tmp_path / "folder").mkdir()
    assert unpack(archive, tmp_path / "folder").files


def test_a_truncated_archive_and_a_changed_file(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    found = members(archive)
    found["cluster_config.yaml"] += b"# changed\n"
    for number, content in enumerate((whole[: len(whole) // 2], _packed(found))):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        archive.write_bytes(content)
        with pytest.raises(LlmbError) as raised:
            unpack(archive, folder)
        assert raised.value.code == "archive-damaged"


def test_any_changed_byte_breaks_the_seal(archive: Path) -> None:
    whole = archive.read_bytes()
    assert check_seal(archive)
    for place in [*range(0, len(whole), 97), *range(len(whole) - 40, len(whole))]:
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with pytest.raises(LlmbError) as raised:
            CliContext(NO_PLUGINS).sealed_archive(archive)
        in_head = len(whole) - 40 <= place < len(whole) - 32  # then it is no seal any more
        assert raised.value.code == ("archive-unsealed" if in_head else "archive-damaged")


def test_an_archive_without_a_seal_is_read_and_is_no_evidence(
    archive: Path, llmb_here: Run
) -> None:
    archive.write_bytes(archive.read_bytes()[:-40])
    assert llmb_here("results", archive).returncode == 3
    assert not check_seal(archive)
    with pytest.raises(LlmbError) as raised:
        CliContext(NO_PLUGINS).sealed_archive(archive)
    assert raised.value.code == "archive-unsealed"


def test_files_of_the_install_directory_are_included_on_request(
    install: Any, run: Run, tmp_path: Path
) -> None:
    install.measured("good1", 2.70)
    notes = install.folder / "workloads" / "notes"
    notes.mkdir()
    (notes / "site.txt").write_text("row 4\n")
    path, outside = tmp_path / "night.tar.zst", tmp_path / "outside.txt"
    assert run("archive", "--include", notes, "-o", path).returncode == 0
    assert members(path)["workloads/notes/site.txt"] == b"row 4\n"
    outside.touch()
    done = run("archive", "--include", outside, "-o", tmp_path / "other.tar.zst")
    assert done.returncode == 2
    assert not (tmp_path / "other.tar.zst").exists()


def test_an_existing_file_is_kept(archive: Path, run: Run, llmb_here: Run, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        assert run("archive", "good1", "-o", archive).returncode == 2
        assert archive.read_bytes() == whole
        assert run("archive", "good1", "-o", archive, "--force").returncode == 0
        assert llmb_here("results", "missing.tar.zst").returncode == 2


def test_an_archive_and_a_report_keep_a_link_and_a_pipe(
    install: Any, run: Run, tmp_path: Path
) -> None:
    install.measured("good1", 2.70)
    for words, name in ((["archive", "--force"], "a.tar.zst"), (["report"], "r.html")):
        link, pipe = tmp_path / name, tmp_path / f"pipe-{name}"
        link.symlink_to(tmp_path / f"there-{name}")
        os.mkfifo(pipe)
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            for path in (link, pipe):
                assert run(*words, "-o", path).returncode == 0
            assert reader.communicate()[0]
        assert (link.is_symlink(), link.is_file(), pipe.is_fifo()) == (True, True, True)
