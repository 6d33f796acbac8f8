# SPDX-License-Identifier: Apache-2.0
"""What a pod does at the end of its script, by a real bash: the codes of pods that fail
together.
"""

import subprocess
from pathlib import Path

import pytest

from llmb_runai.pod_script import _OF_SEVERAL


@pytest.mark.parametrize(
    ("reported", "code"),
    [("", 143), ("7\n", 7)],
    ids=["a file that its pod has yet to write", "one that is written"],
)
def test_a_pod_that_failed_takes_over_the_code_that_another_has_reported(
    tmp_path: Path, reported: str, code: int
) -> None:
    (tmp_path / ".failed.0").write_text(reported)
    text = f"llmb_run=$1 llmb_node=1 llmb_code=143\n{_OF_SEVERAL}"
    done = subprocess.run(
        ["bash", "-c", text, "bash", tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert (tmp_path / ".failed.1").read_text() == f"{code}\n"
