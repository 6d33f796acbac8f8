# SPDX-License-Identifier: Apache-2.0
"""Every error that programs and scripts of llmb print in a run's log has a cause with a fix.

The lines are read from the source: each raised error of a program that prints it, and each literal
line of a program or of a script.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from llmb.contract.failures import Failure
from llmb.measure.root_cause import root_cause

ROOT = Path(__file__).parents[3]
#: The programs of compute nodes, and the code that writes what else runs there.
SOURCES = ("workloads/llmb_workloads", "llmb/kit", "llmb/builtin", "plugins")
#: What ``main`` of a program prints behind BEGIN and ends with.
PRINTED = {"RefusedError", "MicrobenchError"}
BEGIN = "llmb error: "
#: A line that a script or a program prints: of ``echo``, of ``llmb_say``, or in ``print``.
LITERAL = re.compile(r"(?:echo|llmb_say|print\() ?[\"']?((?:llmb )?error: [^\"\n]+)")
LAUNCHER = "launcher variables"


class Line(NamedTuple):
    """A line as it may be in a log, and its place in the source."""

    place: str
    text: str


def lines() -> Iterator[Line]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            place = str(path.relative_to(ROOT))
            tree = ast.parse(text)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and _name(node.func) in PRINTED:
                    yield Line(f"{place}:{node.lineno}", BEGIN + _message(node))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for match in LITERAL.finditer(node.value):
                        yield Line(f"{place}:{node.lineno}", match[1])
                elif isinstance(node, ast.JoinedStr):
                    words = _text(node)
                    # main of a program prints BEGIN and an error of PRINTED
                    if words.startswith(("error: ", BEGIN)) and words != f"{BEGIN}7":
                        yield Line(f"{place}:{node.lineno}", words)


def _name(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else ""


def _message(call: ast.Call) -> str:
    """``PLACE: CAUSE; FIX`` of the three arguments of RefusedError, else the only argument."""
    words = [_text(argument) for argument in call.args]
    return words[0] if len(words) == 1 else f"{words[0]}: {words[1]}; {'; '.join(words[2:])}"


def _text(node: ast.expr) -> str:
    """The text of a literal with 7 for each value, and 7 for any other expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return "7"


LINES = list(lines())


def test_the_lines_of_all_programs_and_scripts_are_found() -> None:
    found = {line.place.split(":")[0] for line in LINES}
    assert {
        "workloads/llmb_workloads/fields.py",
        "workloads/llmb_workloads/world.py",
        "workloads/llmb_workloads/library.py",
        "workloads/llmb_workloads/torch_pretrain.py",
        "workloads/llmb_workloads/nemo_pretrain/build.py",
        "workloads/llmb_workloads/bridge_pretrain/recipe.py",
        "workloads/llmb_workloads/bridge_pretrain/settings.py",
        "plugins/microbench/llmb_microbench/program/settings.py",
        "plugins/microbench/llmb_microbench/program/storage.py",
        "llmb/kit/node_script.py",
        "llmb/builtin/wrappers.py",
        "llmb/builtin/local/start_rank.py",
        "llmb/kit/rank_command.py",
    } <= found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.place)
def test_each_has_a_cause_with_a_fix(line: Line, tmp_path: Path) -> None:
    log = tmp_path / "log.out"
    log.write_text(f"nemo_pretrain: starts\n{line.text}\nsrun: error: node1: task 0: Exited\n")
    cause = root_cause([log])
    assert cause is not None, f"add a row to llmb/measure/failures.yaml for: {line.text}"
    assert cause.fix
    # the fix of this class is that the line ends with one
    assert cause.kind != "refused" or "; " in line.text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("environment: RANK is set, MASTER_ADDR not; set MASTER_ADDR to the first node", LAUNCHER),
        ("environment: ranks started: 1, the recipe is for 2 × 8 GPUs; start 16", LAUNCHER),
        ("RANK is set and WORLD_SIZE is 'None'; start the ranks with torchrun or llmb", LAUNCHER),
        ("megatron-core: is not installed; use the image of release 26.02", "missing package"),
        ("megatron-bridge (not installed): has no module x (y); use it", "missing package"),
        ("megatron-bridge 0.2.0: has no module x (No module named 'x'); use", "releases differ"),
        ("megatron-bridge 0.2.0: x has no 'f'; use the image", "releases differ"),
        ("nemo_toolkit 2.4: a.B has no setting 'c'; use NeMo 2.3", "releases differ"),
        (
            "torch 2.6: is another release than the recipe's, 2.8 of image 26.02; use",
            "releases differ",
        ),
        ("the scheduler has started no nodes, and this run has 8; see its events", "Run:ai"),
        ("/pvc/run cannot be written from this node; check its file system", "Run:ai"),
        ("host_to_device needs a GPU, and torch finds none on this node; check", "GPU hardware"),
        ("MICROBENCH_FOLDER is /x, which is not a folder on this node; name another", "disk"),
        ("/x has less free than twice the files of this node; choose a smaller file_size", "disk"),
        ("recipe.overrides.a.lrr: megatron-bridge 0.6.0 has no setting 'lrr' in A", "refused"),
        ("recipe.global_batch: 6 is not a multiple of micro_batch 2 times 2 ranks", "refused"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "3: ", "[default0]:", "[rank3]: "])
def test_its_class_is_the_one_whose_fix_helps(
    prefix: str, text: str, kind: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.out"
    log.write_text(f"{prefix}{BEGIN}{text}\n")
    cause = root_cause([log])
    assert cause is not None
    assert cause.kind == kind


def test_the_output_of_a_failed_server_says_more_than_its_end(tmp_path: Path) -> None:
    log = tmp_path / "log.out"
    end = f"{BEGIN}the server of rank 0 has ended with exit code 1 before it was ready; the end of"
    log.write_text(f"{end} its output in server-0.out:\nOSError: [Errno 24] Too many open files\n")
    cause = root_cause([log])
    assert cause is not None
    assert cause.kind == "open files"


def test_a_plugin_s_cause_of_its_own_error_comes_before_the_general_one(tmp_path: Path) -> None:
    log = tmp_path / "log.out"
    log.write_text(f"{BEGIN}acme: licence expired; renew it\n")
    own = Failure(kind="licence", text=("licence expired",), fix="acme-licence renew")
    cause = root_cause([log], more=(own,))
    assert cause is not None
    assert (cause.kind, cause.fix) == ("licence", "acme-licence renew")


def test_another_rank_that_hangs_is_no_cause_after_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log.out"
    log.write_text(
        f"3: {BEGIN}recipe.seed: is -1; choose one from 0\n0: torch.distributed.DistNetworkError:"
        " The client socket has timed out after 600000ms\n"
    )
    cause = root_cause([log])
    assert cause is not None
    assert (cause.kind, cause.rank) == ("refused", 3)
