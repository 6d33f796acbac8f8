# SPDX-License-Identifier: Apache-2.0
"""Tests of vboost on a real Slurm: set once on each node before the training, with fake sudo and
nvidia-smi.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm import sbatch_script

Site = Any  # the class is in conftest.py

TRAIN = "print('trained')"
# Writes each call to a file, a line each.
SUDO = """\
#!/bin/bash
echo "$SLURMD_NODENAME $*" >> {calls}
{body}
[[ $1 == -n ]] && shift && exec "$@"
"""
NVIDIA_SMI = "#!/bin/bash\necho 'Boost slider set'\n"
NO_PASSWORD = "sudo: a password is required"
REFUSES = f"echo 'a line before'; echo '{NO_PASSWORD}' >&2; exit 1"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file to which the fake sudo writes its calls."""
    return tmp_path / "calls"


def put(folder: Path, calls: Path, body: str = "") -> str:
    """Write the fake programs to a folder, and return a PATH that begins with it."""
    folder.mkdir()
    for name, text in (("sudo", SUDO.format(calls=calls, body=body)), ("nvidia-smi", NVIDIA_SMI)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"


def trained(site: Site, path: str, nodes: int) -> list[str]:
    """The log of a run that sets vboost and then succeeds."""
    cluster = site.cluster(environ={"PATH": path})
    run = site.submit(TRAIN, cluster=cluster, nodes=nodes, vboost=True)
    site.ends(run)
    text: str = run.log.read_text()
    return text.splitlines()


def set_on(line: str) -> tuple[int, int, str]:
    """On how many nodes of how many it was set, and why not on the others."""
    found = re.search(r"(\d+) of (\d+) nodes?\}?(?:: (.*))?$", line)
    assert found is not None, line
    return int(found[1]), int(found[2]), found[3] or ""


def test_it_is_set_once_on_each_node_before_the_training(
    site: Site, tmp_path: Path, calls: Path
) -> None:
    log = trained(site, put(tmp_path / "bin", calls), 4)
    assert (set_on(log[0]), log[1:]) == ((4, 4, ""), ["trained"] * 4)
    asked = "-n nvidia-smi boost-slider --vboost 1"
    assert sorted(calls.read_text().splitlines()) == [
        f"n{number} {asked}" for number in (1, 2, 3, 4)
    ]


def test_a_node_that_refuses_is_named_and_the_training_continues(
    site: Site, tmp_path: Path, calls: Path
) -> None:
    path = put(tmp_path / "bin", calls, f"[[ $SLURMD_NODENAME != n2 ]] || {{ {REFUSES}; }}")
    log = trained(site, path, 3)
    assert (set_on(log[0]), log[1:]) == ((2, 3, f"n2: {NO_PASSWORD}"), ["trained"] * 3)


def test_a_node_without_sudo(site: Site, tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    for name in (
        "bash",
        "srun",
        "scancel",
        "timeout",
        "grep",
        "sed",
        "head",
        "date",
        "mv",
        "ln",
        "rm",
        "hostname",
        "nproc",
    ):
        (empty / name).symlink_to(
            f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}"
        )
    (empty / "sbatch").symlink_to("/usr/bin/sbatch")
    log = trained(site, str(empty), 1)
    found, nodes, why = set_on(log[0])
    assert (found, nodes, why[0]) == (0, 1, "n")
    assert "command not found" in why  # what bash says
    assert log[1:] == ["trained"]


def test_a_node_that_does_not_answer_is_not_waited_for(
    site: Site,
    tmp_path: Path,
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    monkeypatch.setattr(sbatch_script, "VBOOST_SECONDS", 3)
    path = put(tmp_path / "bin", calls, "[[ $SLURMD_NODENAME == n1 ]] || exec sleep 900")
    log = trained(site, path, 2)
    assert set_on(log[0])[:2] == (1, 2)
    assert log[1:] == ["trained", "trained"]
    wording("jobs logs", log[0])


def test_results_and_explain_name_it(
    site: Site, tmp_path: Path, calls: Path, fake_python: Any
) -> None:
    line = (
        "Training epoch 0, iteration $i/1 | reduced_train_loss: 7.0 | train_step_timing in s: 0.5"
    )
    fake_python(f'[[ $RANK == 0 ]] || exit 0; for i in 0 1; do echo "{line}"; done')
    words = (
        "single",
        "-w",
        "nemotron4",
        "-s",
        "tiny",
        "--dtype",
        "fp32",
        "--scale",
        2,
        "--set",
        "max_steps=2",
        "--no-telemetry",  # which the fake Python would take for a rank
    )
    path = put(tmp_path / "bin", calls, REFUSES)
    done = site.llmb(*words, "--vboost", "--wait", "--format", "json", PATH=path)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["configuration"]["vboost"] is True
    assert set_on(result["log"]["vboost"])[:2] == (0, 2)
    assert result["log"]["vboost"] in site.llmb("explain", result["run"]).stdout
    assert NO_PASSWORD in result["log"]["vboost"]
    calls.unlink()
    done = site.llmb(*words, "--wait", "--format", "json", PATH=path)
    assert json.loads(done.stdout)["results"][0]["log"]["vboost"] is None
    assert not calls.exists()
