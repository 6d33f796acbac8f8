# SPDX-License-Identifier: Apache-2.0
"""Tests of the pytest plugin of llmb-testing: a good plugin passes the contract, a broken one fails
it readably.
"""

import importlib
import pkgutil
from pathlib import Path

import pytest

import llmb
from llmb.check.scaffold import scaffold
from llmb.core.files import write_folder
from llmb_testing import contract as contract, contract_support, machine as machine
from llmb_testing.contract_support import loaded


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Every module of llmb: pytester forgets those that an inner run imports first, and two copies
    are not equal.
    """
    for module in pkgutil.walk_packages(llmb.__path__, "llmb."):
        importlib.import_module(module.name)


@pytest.fixture(autouse=True)
def nothing_loaded() -> None:
    """Each test has its own plugin, of the same name."""
    loaded.cache_clear()


@pytest.fixture
def plugin(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new plugin with a program of its own, whose package is importable."""
    folder = pytester.path / "acme"
    write_folder(folder, scaffold("acme", "program"))
    monkeypatch.syspath_prepend(folder)
    return folder


def edited(plugin: Path, name: str, old: str, new: str) -> None:
    path = plugin / "llmb_acme" / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(
        "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "acme/tests", *arguments
    )


def test_a_new_plugin_passes(pytester: pytest.Pytester, plugin: Path) -> None:
    run(pytester).assert_outcomes(passed=17)


def test_jobs_are_tried_on_runai_only_if_its_plugin_is_installed(
    tmp_path: Path, plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names() -> list[str]:
        plugins = contract_support.load("llmb_acme")
        assert not plugins.problems
        made = contract_support.targets(tmp_path, "h100", plugins, "acme", {})
        return [target.name for target in made]

    without = ["local", "slurm with containers", "slurm without containers"]
    assert names() == [*without, "runai"]
    monkeypatch.setattr(contract_support, "entry_points", lambda group: ())
    assert names() == without


START = 'start="once",'  # of the scaffold's Command


@pytest.mark.parametrize(
    ("name", "old", "new", "test", "text"),
    [
        (
            "__init__.py",
            START,
            START + " environment={'A': str(__import__('time').time_ns())},",
            "launches",
            "different values",
        ),
        (
            "__init__.py",
            START,
            START + " environment={'A': __import__('os').environ.get('HF_TOKEN', 'none')},",
            "launches",
            "different values",
        ),
        (
            "__init__.py",
            START,
            START + " environment={'HF_TOKEN': 'x'},",
            "launches",
            "looks like a secret",
        ),
        (
            "__init__.py",
            "    program = (",
            "    open('x', 'w').close()\n    program = (",
            "launches",
            "writes the file",
        ),
        (
            "__init__.py",
            "    program = (",
            "    raise KeyError('x')\n    program = (",
            "launches",
            "KeyError: 'x'",
        ),
        ("__init__.py", "import Path", "import Paths", "loads", "ImportError"),
        ("workload.yaml", "  write:\n", "  wr ite:\n", "loads", "wr ite"),
        (
            "workload.yaml",
            "scales: [1, 2, 4, 8]",
            "scales: [1, 12]",
            "launches",
            "do not fill whole nodes",
        ),
        ("workload.yaml", "any, dtype: none", "any, dtype: nonesuch", "valid", "default_dtype"),
        ("sample_log.txt", "bandwidth", "bandwith", "valid", "did you mean 'bandwidth'?"),
        (
            "sample_log.txt",
            "9/9 bandwidth=500",
            "9/9 bandwidth=600",
            "expected",
            "not 500 as expected",
        ),
    ],
)
def test_a_broken_plugin_fails_with_a_readable_message(
    name: str, old: str, new: str, test: str, text: str, pytester: pytest.Pytester, plugin: Path
) -> None:
    edited(plugin, name, old, new)
    result = run(pytester, "-k", test)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    output = result.stdout.str()
    assert text in output
    assert "Traceback" not in output
    assert "error: " in output


@pytest.mark.parametrize(
    ("spec", "test", "text"),
    [
        (
            "needle='step', iteration=r'step (?P<i>\\d+)', keys={'bandwidth': 'a'}",
            "expected",
            "the sample is",
        ),
        (
            "needle='=', iteration=r'(?P<i>\\d+) ?(/|of)', keys={'bandwidth': 'bandwidth'}",
            "ranks",
            "narrower",
        ),
    ],
)
def test_a_parser_that_reads_too_much_or_too_little(
    spec: str, test: str, text: str, pytester: pytest.Pytester, plugin: Path
) -> None:
    hook = f"\n\n@api.hookimpl\ndef llmb_parse():\n    return api.ParseSpec({spec})\n"
    path = plugin / "llmb_acme/__init__.py"
    path.write_text(path.read_text("utf-8") + hook, "utf-8")
    result = run(pytester, "-k", test)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert text in result.stdout.str()


@pytest.mark.parametrize("kind", ["workload", "metric", "command"])
def test_the_other_kinds_pass(
    kind: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(pytester.path / "acme", scaffold(f"new-{kind}", kind))
    monkeypatch.syspath_prepend(pytester.path / "acme")
    result = run(pytester)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
