# SPDX-License-Identifier: Apache-2.0
"""Workflow commands as GitHub's own @actions/core writes them, and the summary as Markdown."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from llmb_export import github
from llmb_export.results import Results

TOOLKIT = "@actions/core@1.11.1"
_COMMAND = re.compile(r"::(error|warning) title=([^:,\n]*)::([^\n]*)")
SCRIPT = """
const core = require('@actions/core');
for (const [kind, title, message] of JSON.parse(require('fs').readFileSync(0))) {
    core[kind](message, {title});
}
"""


def unescaped(text: str) -> str:
    for code, char in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, char)
    return text


def commands(text: str) -> list[list[str]]:
    lines = text.split("\n")[:-1]
    matches = [_COMMAND.fullmatch(line) for line in lines]
    return [[unescaped(part) for part in match.groups()] for match in matches if match is not None]


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds GitHub's toolkit."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("toolkit")
    if npm is None:
        pytest.skip("no npm here: apt-get install --no-install-recommends npm")
    argv = [npm, "install", "--silent", "--no-audit", "--no-fund", TOOLKIT]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot fetch {TOOLKIT}: {done.stderr[:200]}")
    return folder


def test_the_toolkit_writes_the_same_commands(toolkit: Path, data: Mapping[str, Any]) -> None:
    text = github.workflow_commands(Results(data=data))
    done = subprocess.run(
        [str(shutil.which("node")), "-e", SCRIPT],
        input=json.dumps(commands(text)),
        cwd=toolkit,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == text
    assert text.count("\n") == 10


def test_the_worst_is_first(data: Mapping[str, Any]) -> None:
    found = commands(github.workflow_commands(Results(data=data)))
    assert [kind for kind, *_ in found] == ["error"] * 5 + ["warning"] * 5
    assert found[0][1] == "FAIL: slower"


def test_a_run_that_failed_has_its_verdict(make_row: Callable[..., Any]) -> None:
    results = Results(data={"results": [make_row("e", None, status="Failed", verdict="INVALID")]})
    ((_, title, _),) = commands(github.workflow_commands(results))
    assert title == "INVALID: e"
    assert "\n| INVALID |" in github.summary(results)


def test_more_runs_than_annotations(make_row: Callable[..., Any]) -> None:
    rows = [make_row(f"e{number}", 0.5, verdict="FAIL") for number in range(30)]
    rows += [make_row(f"w{number}", 0.97, verdict="WARN") for number in range(github.ANNOTATIONS)]
    found = commands(github.workflow_commands(Results(data={"results": rows})))
    assert Counter(kind for kind, *_ in found) == {"error": 10, "warning": 10}
    assert found[9][1] == "21 more runs"
    assert found[-1][1] == "WARN: w9"


def test_the_summary_is_one_table(data: Mapping[str, Any]) -> None:
    html = MarkdownIt("commonmark").enable("table").render(github.summary(Results(data=data)))
    assert html.count("<table>") == 1
    assert html.count("<tr>") == 1 + len(data["results"])
    assert html.count("<td") == 7 * len(data["results"])
    assert "two | &lt;b&gt;three&lt;/b&gt; \N{EURO SIGN}" in html
    assert "<b>" not in html
    assert '<td style="text-align:right">2.5 s</td>' in html
    assert html.index("slower") < html.index("doubtful") < html.index("good")


def test_the_summary_stays_within_the_limit(make_row: Callable[..., Any]) -> None:
    reason = "\N{EURO SIGN}|" * 2000
    rows = [make_row(f"e{n}", verdict_reason=reason, verdict="WARN") for n in range(500)]
    results = Results(data={"results": rows})
    used = 500_000
    text = github.summary(results, used=used)
    assert 0.9 * github.SUMMARY_BYTES < used + len(text.encode()) <= github.SUMMARY_BYTES
    shown = text.count("| WARN |")
    assert f"{500 - shown} more runs" in text
    assert len(github.summary(results, used=github.SUMMARY_BYTES - 10).encode()) <= 300
