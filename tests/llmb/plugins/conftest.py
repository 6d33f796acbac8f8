# SPDX-License-Identifier: Apache-2.0
"""Fixtures: plugins as installed distributions, in a folder of the test."""

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmb.cli import app
from llmb.plugins.loaded import Plugins

ROWS = """
key: {key}
title: A stranger's
default_size: tiny
default_dtype: fp32
sizes:
  tiny:
    model: {{architecture: llama, layers: 2, hidden: 8, ffn: 8, heads: 2, kv_groups: 2, vocab: 8, seq_length: 8}}
    whole_nodes: false
    rows: [{{gpu: any, dtype: fp32, scales: [1, 2], mbs: 1, gbs: N}}]
"""

Install = Callable[..., str]
Load = Callable[[], Plugins]


@pytest.fixture
def site_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path of Python; what is imported from it is forgotten again."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def install(site_packages: Path) -> Install:
    """Puts a distribution there as an installer would: a module, and metadata with an entry point;
    its source.
    """

    def put(name: str, code: str, *, key: str | None = None, target: str = "") -> str:
        module = f"fake_{name}"
        text = code.format(module=module) if "{module}" in code else code
        (site_packages / f"{module}.py").write_text(textwrap.dedent(text))
        if key is not None:
            (site_packages / f"{module}.yaml").write_text(ROWS.format(key=key))
        info = site_packages / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[llmb]\nentry = {target or module}\n")
        return f"{name}:entry"

    return put


@pytest.fixture
def load() -> Load:
    """Loads llmb's own plugins and all that are installed."""

    def all_of_them() -> Plugins:
        importlib.invalidate_caches()
        return app.load()

    return all_of_them
