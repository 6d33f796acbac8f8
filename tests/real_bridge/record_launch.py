# SPDX-License-Identifier: Apache-2.0
"""python record_launch.py CHECKOUT ROWS.json RECORD.json: how NVIDIA's launcher starts each row.

CHECKOUT is Megatron-Bridge's repository (or its folder scripts/performance alone) at the release of
ROWS.json, which record_nvidia.py wrote. setup_experiment.py runs as on a login node, up to the
executor that would submit; NeMo-Run is a mock. Needs no torch. RECORD has, for each row, nodes,
ranks of a node, segment and the binding of ranks, and under ``*`` what all rows have.
"""

import contextlib
import importlib
import io
import json
import logging
import os
import runpy
import sys
from pathlib import Path
from typing import Any

nvidia = importlib.import_module("record_nvidia")
ARGUMENTS = ["-a", "account", "-p", "partition", "-i", "image", "--dryrun"]
SHARED = ("exclusive", "mem", "srun_args")


class SubmittedError(Exception):
    """Raised with the executor that would submit."""


def executor_of(scripts: Path, label: str) -> Any:
    """Return the executor of the row ``label``, as setup_experiment.py makes it."""
    model, gpu, dtype, gpus, *variant = label.split()
    per_node = nvidia.NODE.get(gpu, 8)
    family = nvidia.MODELS[model]
    words = ["-m", family, "-mr", model, "-g", gpu, "-c", dtype, "-ng", gpus, "-gn", str(per_node)]
    words += ["--config_variant", variant[0]] if variant else []
    words += nvidia.options_of(model, gpu, dtype, int(gpus))
    sys.argv = ["setup_experiment.py", *words, *ARGUMENTS]
    executors = vars(importlib.import_module("utils.executors"))
    make = executors["slurm_executor"]

    def record(*arguments: Any, **options: Any) -> Any:
        raise SubmittedError(make(*arguments, **options))

    executors["slurm_executor"] = record
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(scripts / "setup_experiment.py"), run_name="__main__")
    except SubmittedError as submitted:
        return submitted.args[0]
    finally:
        executors["slurm_executor"] = make
    raise AssertionError(label)


def main(checkout: str, rows: str, target: str) -> None:
    """Write the record of all rows."""
    folder = Path(checkout)
    scripts = folder / "scripts" / "performance" if (folder / "scripts").is_dir() else folder
    sys.path.insert(0, str(scripts))
    nvidia.mock_nemo_run()
    os.environ.setdefault("NEMORUN_HOME", "/nemo")
    logging.disable()
    recorded = json.loads(Path(rows).read_text(encoding="utf-8"))
    version = recorded.pop("megatron-bridge")
    labels = [label for label in recorded if not label.endswith(" *")]
    found: dict[str, dict[str, Any]] = {}
    for label in labels:
        executor = executor_of(scripts, label)
        commands = executor.launcher.template_vars["pre_cmds"].split(" ; ")
        found[label] = {
            "nodes": executor.nodes,
            "ranks_per_node": executor.ntasks_per_node,
            "segment": executor.segment,
            "binding": next(command for command in commands if command.startswith("numactl")),
        }
        shared = {name: getattr(executor, name) for name in SHARED}
        assert found.setdefault("*", shared) == shared, label
    lines = [f"{json.dumps(label)}: {json.dumps(row)}" for label, row in found.items()]
    text = "{" + ",\n".join([f'"megatron-bridge": "{version}"', *lines]) + "}\n"
    Path(target).write_text(text, encoding="utf-8")
    print(f"{len(labels)} rows of {version}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
