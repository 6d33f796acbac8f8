# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of docs/coming-from-exemplar.md on a folder of exemplar-performance."""

from pathlib import Path

from llmb_testing.documented import blocks, run

PAGE = Path(__file__).resolve().parents[3] / "docs/coming-from-exemplar.md"


def test_the_commands_of_the_page(source: Path, tmp_path: Path, llmb_program: str) -> None:
    folders = {"/shared/nvidia-llmb": f"{source}-llmb", "/shared/nvidia": str(source)}
    variables = {
        "PATH": f"{Path(llmb_program).parent}:/usr/bin:/bin",
        "LLMB_INSTALL": folders["/shared/nvidia-llmb"],
    }
    for block in blocks(PAGE):
        if block.scene == "exemplar":
            run(block, tmp_path, variables, folders)
    assert (tmp_path / "report.html").is_file()
