# SPDX-License-Identifier: Apache-2.0
"""Tests that commands import as many modules as before, and submissions and polls make as many
system calls.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COUNTS = Path(__file__).with_name("counts.yaml")
ACCEPT = "LLMB_TEST_ACCEPT"
HEADER = f"""\
# SPDX-License-Identifier: Apache-2.0
# Counts of benchmarks/modules.py and benchmarks/calls.py. Tests fail if one has changed by more than 10 %.
# {ACCEPT}=1 make test ARGS='-n 0 tests/benchmarks/test_counts.py' writes this file.
"""
SKIPPED = 77


@pytest.mark.parametrize("name", ["modules", "calls"])
def test_counts_have_not_changed(name: str, request: pytest.FixtureRequest) -> None:
    argv = [sys.executable, str(ROOT / f"benchmarks/{name}.py")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    accepted = yaml.safe_load(COUNTS.read_text(encoding="utf-8"))
    if os.environ.get(ACCEPT):
        accepted[name] = {key: round(value) for key, value in counts.items()}
        COUNTS.write_text(
            HEADER + yaml.safe_dump(accepted, sort_keys=False, width=110), encoding="utf-8"
        )
    changed = {
        key: f"{accepted[name].get(key)} -> {counts.get(key)}"
        for key in accepted[name] | counts
        if counts.get(key) != pytest.approx(accepted[name].get(key), rel=0.1)
    }
    how = f"{ACCEPT}=1 make test ARGS='-n 0 {request.node.nodeid}' accepts it"
    assert not changed, f"tests/benchmarks/{COUNTS.name} differs; {how}"


CHECK = """
import sys
import instructions
sys.exit(instructions.check({"plan": float(sys.argv[1])}, {"lock": "0", "plan": 10.0}, digest=sys.argv[2]))
"""


@pytest.mark.parametrize(
    ("figure", "digest", "code", "notes"),
    [
        (10.9, "0", 0, 0),
        (11.1, "0", 1, 0),
        (8.9, "0", 0, 1),
        (10, "1", 0, 1),
    ],
)
def test_more_instructions_fail(
    figure: float, digest: str, code: int, notes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))
    argv = [sys.executable, "-c", CHECK, str(figure), digest]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.count("note:") == notes
    assert done.stderr.startswith("error: plan:") == bool(code)
