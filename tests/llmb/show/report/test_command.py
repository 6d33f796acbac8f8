# SPDX-License-Identifier: Apache-2.0
"""Tests of `llmb-run report` as a command: formats, files, exit codes, what goes where."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pexpect
import pytest

Wording = Callable[..., None]

Command = Callable[..., "subprocess.CompletedProcess[str]"]


class Night(Protocol):
    """The fixture of conftest.py."""

    folder: Path

    def measured(
        self, seconds: float, workload: str, dtype: str, scale: int, **how: Any
    ) -> None: ...


@pytest.fixture
def report(empty_night: Night, llmb_here: Command) -> Command:
    """Runs the command on an install with one good run."""
    empty_night.measured(2.75, "nemotron4_15b", "bf16", 16)
    return lambda *words: llmb_here("report", *words, "--install", empty_night.folder)


def test_markdown_goes_to_stdout_as_ever(report: Command) -> None:
    done = report()
    assert done.returncode == 0
    title = done.stdout.splitlines()[0].split()
    assert (title[0], title[-1]) == ("#", "aurora")
    assert undated(report("--format", "md").stdout) == undated(done.stdout)


def undated(text: str) -> list[str]:
    """The lines of a report but for the one that tells the minute it was made in."""
    return [line for line in text.splitlines() if not line.startswith("Made by ")]


@pytest.mark.parametrize(
    ("name", "words", "start"),
    [
        ("report.md", [], "# Benchmarks"),
        ("report", [], "# Benchmarks"),
        ("report.html", [], "<!doctype html>"),
        ("REPORT.HTM", [], "<!doctype html>"),
        ("report", ["--format", "html"], "<!doctype html>"),
        ("report.html", ["--format", "md"], "# Benchmarks"),
    ],
)
def test_the_name_of_the_file_says_the_format(
    name: str, words: list[str], start: str, report: Command, tmp_path: Path, wording: Wording
) -> None:
    path = tmp_path / name
    done = report("-o", path, *words)
    assert (done.returncode, done.stdout) == (0, "")
    wording("report", str(done.stderr.splitlines()[-1]))
    assert path.read_text("utf-8").startswith(start)


def test_html_without_a_file_goes_where_the_output_goes(report: Command) -> None:
    done = report("--format", "html")
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.endswith("</html>\n")


def test_html_is_not_for_a_terminal(
    empty_night: Night, wording: Wording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    program = str(Path(sys.executable).with_name("llmb-run"))
    words = ["report", "--format", "html", "--install", str(empty_night.folder)]
    child = pexpect.spawn(program, words, encoding="utf-8", timeout=200)
    shown = child.read()
    child.close()
    assert child.exitstatus == 2
    wording("report", str(shown).replace("\r", ""))
    assert "<html" not in shown


@pytest.mark.parametrize(("seconds", "code"), [(2.75, 0), (2.83, 0), (3.2, 3)])
def test_the_exit_code_follows_the_verdict(
    seconds: float, code: int, empty_night: Night, llmb_here: Command, tmp_path: Path
) -> None:
    empty_night.measured(seconds, "nemotron4_15b", "bf16", 16)
    path = tmp_path / "report.html"
    assert llmb_here("report", "-o", path, "--install", empty_night.folder).returncode == code
    assert path.exists()


def test_a_page_is_written_whole_or_not_at_all(
    report: Command, tmp_path: Path, wording: Wording
) -> None:
    path = tmp_path / "there" / "report.html"
    assert report("-o", path).returncode == 2
    assert not path.parent.exists()
    path.parent.mkdir()
    assert report("-o", path).returncode == 0
    assert [found.name for found in path.parent.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("x")
    for output in (tmp_path / "file" / "report.html", path.parent):
        done = report("-o", output)
        assert done.returncode == 2
        wording("report", done.stderr)


@pytest.mark.parametrize("name", ["report.pdf", "report.json", "report.html.gz"])
def test_an_extension_without_a_format_is_refused_and_named(
    name: str, report: Command, tmp_path: Path, wording: Wording
) -> None:
    done = report("-o", tmp_path / name)
    assert done.returncode == 2
    wording("report", done.stderr)
    assert not list(tmp_path.glob("report*"))
    assert report("-o", tmp_path / name, "--format", "md").returncode == 0


def test_the_window_and_the_release_are_those_asked_for(report: Command, wording: Wording) -> None:
    text = report("--format", "html", "--reference", "25.04", "--window", "last").stdout
    (line,) = [line for line in text.splitlines() if "window last" in line]
    wording("report", line)
    assert report("--format", "html", "--window", "nonsense").returncode == 2


def test_only_a_page_needs_the_template_engine(
    report: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert report().returncode == 0
    with pytest.raises(ImportError):
        report("--format", "html")


def test_a_run_that_cannot_be_read_is_missed(
    empty_night: Night, report: Command, wording: Wording
) -> None:
    (path,) = empty_night.folder.rglob("llmb-run.json")
    (path.parent.parent / "broken").mkdir()
    (path.parent.parent / "broken" / path.name).write_text("{}")
    assert report("--history").returncode == 3  # as `results` has it
    for fmt in ("md", "html"):
        done = report("--format", fmt)
        assert done.returncode == 3
        (line,) = [line for line in done.stdout.splitlines() if "cannot read" in line]
        wording("report", line)
        assert f"{path.parent.parent / 'broken' / path.name} " in done.stdout  # the reason names it
        if fmt == "md":
            assert [
                line.count("Unknown") for line in done.stdout.splitlines() if line.startswith("| ")
            ].count(1) == 1
        assert "warning: " in done.stderr
