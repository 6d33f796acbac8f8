# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/nemo.md has the table of differences.yaml, and that its check would tell."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from llmb.core import yamlfile

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/nemo.py, with a copy of its page and of the list."""
    spec = importlib.util.spec_from_file_location("nemo_page", DOCS / "nemo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("PAGE", "LIST"):
        copy = shutil.copy(getattr(module, name), tmp_path)
        monkeypatch.setattr(module, name, Path(copy))
    return module


def test_the_page_is_not_stale(writer: ModuleType) -> None:
    assert writer.main(["--check"]) == 0, "run: python docs/nemo.py"
    text = writer.PAGE.read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    entries = yamlfile.load(writer.LIST).data["differences"]
    for entry in entries:
        for setting in entry["settings"]:
            assert f"| `{setting}` |" in text
        assert [entry["reason"], entry["source"]] in [row[-2:] for row in rows]
    assert ["`llama3.1 70b *`", "`model.config.init_method_std`", "`0.02`", "`0.008944`"] in [
        row[:4] for row in rows
    ]
    assert ["`* gb200 *`", "`environment.NCCL_NET_GDR_LEVEL`", "`PHB`", "absent"] in [
        row[:4] for row in rows
    ]


def test_its_check_tells_another_list(
    writer: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.LIST.write_text(writer.LIST.read_text("utf-8").replace("0.008944", "0.009"), "utf-8")
    assert writer.main(["--check"]) == 1
    assert "run: python docs/nemo.py" in capsys.readouterr().out
    assert writer.main([]) == 0
    assert "`0.009`" in writer.PAGE.read_text("utf-8")
    assert writer.main(["--check"]) == 0


def test_a_page_without_its_lines_is_refused(writer: ModuleType) -> None:
    writer.PAGE.write_text("# Another page\n", "utf-8")
    with pytest.raises(ValueError, match="has no lines"):
        writer.main(["--check"])
