# SPDX-License-Identifier: Apache-2.0
"""python record_launch.py CHECKOUT RECORD.json: how NVIDIA's launcher of NeMo 2.3.1 starts a job.

CHECKOUT is NeMo's repository, or its folder scripts/performance alone, at tag v2.3.1. Its function
slurm_executor runs with mocks of NeMo and NeMo-Run. Needs no torch. RECORD has what all jobs have,
the digest of the file, and the segment by GPUs of a node and nodes, where there is one.
"""

import hashlib
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "2.3.1"
#: More than the nodes of any row, by GPUs of a node.
NODES = {4: 320, 8: 320}
SHARED = ("exclusive", "mem", "srun_args")


def launcher(file: Path) -> Any:
    """The module with slurm_executor."""
    sys.path.insert(0, str(HERE.parent / "real_bridge"))
    mocks, nvidia = importlib.import_module("mocks"), importlib.import_module("record_nvidia")
    mocks.FAMILIES.clear()
    mocks.FAMILIES.update(("nemo", "numpy", "pandas", "lightning"))
    sys.meta_path.insert(0, mocks.Finder())
    nvidia.mock_nemo_run()
    spec = importlib.util.spec_from_file_location("nemo_utils", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(checkout: str, target: str) -> None:
    """Write the record."""
    folder = Path(checkout)
    file = (
        folder / "scripts/performance" if (folder / "scripts").is_dir() else folder
    ) / "utils.py"
    os.environ.setdefault("NEMO_HOME", "/nemo")
    module = launcher(file)
    found: dict[str, Any] = {
        "nemo": VERSION,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    for per_node, most in NODES.items():
        segments = {}
        for nodes in range(1, most + 1):
            made = module.slurm_executor("account", "partition", "/nemo", nodes, per_node)
            shared = {name: getattr(made, name) for name in SHARED}
            assert found.setdefault("*", shared) == shared
            assert (made.nodes, made.ntasks_per_node) == (nodes, per_node)
            if made.segment is not None:
                segments[nodes] = made.segment
        found[str(per_node)] = segments
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    Path(target).write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
