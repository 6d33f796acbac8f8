# SPDX-License-Identifier: Apache-2.0
"""Tests of parse and of `plugins check --log` on logs of a plugin's benchmark that trains no
model.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb_testing.plugin_writer import write_benchmark

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Wording = Callable[..., None]
NAME = "netbench_all_reduce_bf16_gpus8_message_size256m_algorithmring"


def lines(
    count: int = 20, form: str = "llmb step {n}/{last} busbw={value} algbw=250 latency=35.5\n"
) -> str:
    return "".join(form.format(n=n, last=count - 1, value=480 + n % 2) for n in range(count))


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The plugin's folder, installed for this test; its module is forgotten afterwards."""
    write_benchmark(tmp_path / "plugins", "netbench")
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    importlib.invalidate_caches()
    yield tmp_path / "plugins"
    sys.modules.pop("netbench", None)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / f"log-{NAME}_4711.out"
    path.write_text(lines())
    return path


def own_format(plugin: Path, keys: str = "{'busbw': 'bus', 'latency': 'took'}") -> None:
    """Give the plugin an llmb_parse for lines of another form."""
    (module,) = (path for path in plugin.rglob("*.py") if "llmb_workload" in path.read_text())
    hook = (
        "\nfrom llmb.api import ParseSpec, hookimpl\n\n@hookimpl\ndef llmb_parse(run):\n    assert"
        " run.log.exists()\n    return ParseSpec(needle='bus', iteration=r'\\(round"
        f" (?P<i>\\d{{1,6}})\\)', keys={keys}, units={{'latency': 1e6}})\n"
    )
    module.write_text(module.read_text() + hook)


def test_a_log_of_a_benchmark_by_its_name(log: Path, llmb_here: Command) -> None:
    done = llmb_here("parse", log, "--gpu-type", "h100", "--format", "json")
    (row,) = json.loads(done.stdout)["results"]
    assert (done.returncode, row["status"], row["headline"]) == (0, "Success", "busbw")
    assert row["window"] == [4, 18]
    latency = row["metrics"]["latency"]
    assert {key: latency[key] for key in ("mean", "std", "n", "unit", "better")} == {
        "mean": 35.5,
        "std": 0.0,
        "n": 15,
        "unit": "us",
        "better": "lower",
    }
    configuration = row["configuration"]
    assert [
        configuration[name] for name in ("workload", "model_size", "dtype", "scale", "gbs")
    ] == [
        "netbench",
        "all_reduce",
        "bf16",
        8,
        None,
    ]
    assert configuration["parameters"] == {"message_size": "256M", "algorithm": "ring"}
    assert row["not_said"] == []
    assert {
        row[name] for name in ("tokens_per_second", "mfu", "model_flops", "model_tflops_per_gpu")
    } == {None}


@pytest.mark.parametrize("words", [("netbench_all_reduce",), ("netbench_send_receive",)])
def test_a_log_of_any_name_with_its_workload(
    words: tuple[str, ...], tmp_path: Path, llmb_here: Command
) -> None:
    (tmp_path / "bench.txt").write_text(lines())
    done = llmb_here("parse", tmp_path / "bench.txt", "-w", *words, "--format", "json")
    (row,) = json.loads(done.stdout)["results"]
    assert (done.returncode, row["status"]) == (0, "Success")
    assert row["headline"] == ("latency" if "send_receive" in words[0] else "busbw")


def test_a_key_without_its_size_is_refused(
    tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    (tmp_path / "bench.txt").write_text(lines())
    done = llmb_here("parse", tmp_path / "bench.txt", "-w", "netbench")
    assert (done.returncode, done.stdout) == (2, "")
    wording("parse", done.stderr)


@pytest.mark.parametrize(
    "before", ["", "[NeMo I 2025-05-01] start", "n1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0"]
)
def test_steps_without_a_workload_are_no_failure(
    before: str, tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    (tmp_path / "bench.txt").write_text(f"{before}\n{lines()}")
    (row,) = json.loads(llmb_here("parse", tmp_path / "bench.txt", "--format", "json").stdout)[
        "results"
    ]
    assert (row["status"], row["metrics"]) == ("Unknown", {})
    wording("parse", row["reason"])


def test_the_plugins_own_format(plugin: Path, tmp_path: Path, llmb_here: Command) -> None:
    own_format(plugin)
    (tmp_path / "bench.txt").write_text(
        lines(form="bus {value}: bus={value} took=35e-6 (round {n})\n")
    )
    done = llmb_here(
        "parse", tmp_path / "bench.txt", "-w", "netbench_all_reduce", "--format", "json"
    )
    (row,) = json.loads(done.stdout)["results"]
    assert (row["status"], row["metrics"]["latency"]["mean"]) == ("Success", pytest.approx(35))
    (tmp_path / "bench.txt").write_text(lines())
    done = llmb_here("parse", tmp_path / "bench.txt", "-w", "netbench_all_reduce")
    assert done.returncode != 0


@pytest.mark.parametrize("pattern", [r"\d/\d(?P<i>x)?", r"st(?:x(?P<i>\d)|ep \d)"])
def test_a_pattern_that_matches_no_number(
    pattern: str, plugin: Path, log: Path, llmb_here: Command
) -> None:
    own_format(plugin)
    (module,) = (path for path in plugin.rglob("*.py") if "llmb_parse" in path.read_text())
    module.write_text(module.read_text().replace(r"\(round (?P<i>\d{1,6})\)", pattern))
    for words in (("parse", log), ("plugins", "check", "--log", log)):
        done = llmb_here(*words, "-w", "netbench_all_reduce")
        text = done.stdout + done.stderr
        assert done.returncode in (1, 3)
        assert ("netbench" in text, "iteration" in text, "group 'i'" in text) == (True, True, True)
    other = log.with_name("log-pretrain_nemotron4_15b_bf16_16.out")
    other.write_text(
        "".join(f"iteration {i}/49 | train_step_timing in s: 2 |\n" for i in range(50))
    )
    assert "2.000" in llmb_here("parse", log.parent).stdout  # the others are read


def test_a_plugin_with_a_wrong_spec_is_named(plugin: Path, log: Path, llmb_here: Command) -> None:
    own_format(plugin, keys="{'buswb': 'bus', 'latency': 'took'}")
    done = llmb_here("parse", log, "-w", "netbench_all_reduce")
    assert done.returncode != 0
    assert ("buswb" in done.stderr, "'busbw'" in done.stderr) == (True, True)
    assert llmb_here("parse", log).returncode in (0, 3)  # where it is not asked for, it is skipped


@pytest.mark.parametrize("words", [(), ("-w", "netbench"), ("-w", "netbench_all_reduce")])
def test_trying_a_log(
    words: tuple[str, ...], log: Path, llmb_here: Command, wording: Wording
) -> None:
    done = llmb_here("plugins", "check", "--log", log, *words)
    assert done.returncode == 0, done.stderr
    wording("plugins-check", done.stdout + done.stderr)


def test_trying_a_log_that_lacks_a_value(log: Path, llmb_here: Command, wording: Wording) -> None:
    log.write_text(log.read_text().replace("step 7/19 busbw=481", "step 7/19 busbw=nan"))
    done = llmb_here("plugins", "check", "--log", log, "-w", "netbench")
    wording("plugins-check", done.stdout + done.stderr)


def test_trying_a_log_in_which_nothing_is_found(
    tmp_path: Path, llmb_here: Command, wording: Wording
) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    done = llmb_here("plugins", "check", "--log", tmp_path / "x.txt")
    assert done.returncode == 1
    wording("plugins-check", done.stdout + done.stderr)
    assert (
        llmb_here("plugins", "check", "--log", tmp_path / "x.txt", "-w", "netbench").returncode == 1
    )
    assert llmb_here("plugins", "check", "--log", tmp_path / "none.txt").returncode == 2
    assert llmb_here("plugins", "check", "-w", "no-such-workload").returncode == 2
