# SPDX-License-Identifier: Apache-2.0
"""The programs of jobs in an install directory that others may write to."""

import os
from pathlib import Path

import pytest

from llmb.errors import LlmbError
from llmb.kit import programs


def test_staged_programs_are_those_of_their_digest(tmp_path: Path) -> None:
    folder = programs.stage(tmp_path)
    (folder / "llmb_workloads" / "__pycache__").mkdir()
    (folder / "llmb_workloads" / "__pycache__" / "x.pyc").write_bytes(b"\xff")
    assert programs.stage(tmp_path) == folder
    programs.stage_once(tmp_path, programs.digest())


@pytest.mark.parametrize("change", ["edit", "add", "link", "remove", "prepare", "binary"])
def test_changed_programs_are_refused(change: str, tmp_path: Path) -> None:
    """Each imports its own code into other users' jobs, also from a folder that was there first."""
    digest = programs.digest()
    folder = programs.path(tmp_path, digest)
    if change == "prepare":
        (folder / "llmb_workloads").mkdir(parents=True)
    else:
        programs.stage(tmp_path)
    first = next(folder.rglob("*.py"), folder / "x.py")
    if change == "edit":
        first.write_text("print('theirs')\n")
    elif change == "add":
        (folder / "torch.py").write_text("print('theirs')\n")
    elif change == "link":
        (folder / "sitecustomize.py").symlink_to(os.devnull)
    elif change == "remove":
        first.unlink()
    elif change == "binary":
        (folder / "torch.so").write_bytes(b"\x7fELF\xff")
    programs._checked.clear()
    for call in (
        lambda: programs.stage(tmp_path),
        lambda: programs.stage_once(tmp_path, digest),
    ):
        with pytest.raises(LlmbError) as raised:
            call()
        assert (raised.value.code, raised.value.value) == ("programs-changed", str(folder))
