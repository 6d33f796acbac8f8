# SPDX-License-Identifier: Apache-2.0
"""Writes gpu.md from gpu.json, the results of `make gpu` on machines with a GPU.

python docs/gpu.py FOLDER...    first puts the results of these folders into gpu.json
python docs/gpu.py --check      reports whether the page is as the file has it
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("gpu.md")
RESULTS = PAGE.with_suffix(".json")
KEPT = ("state", "seconds", "reason", "lines", "omitted")

#: The parts of `make gpu`: what each shows.
PARTS = {
    "facts": (
        "every value that llmb reads from the driver (NVML), with return codes, idle and"
        " under load;"
        " the same values by NVIDIA's own bindings"
    ),
    "load": (
        "a matrix product for 90 s: clocks, reasons, power, energy and temperature each second; the"
        " energy counter against power over time; what a sample costs, and what telemetry costs"
    ),
    "microbench": (
        "the microbenchmarks, as a user runs them: install, submit, results, report; products also"
        " as a share of the data sheet's peak"
    ),
    "train": (
        "a Llama of 1 and 3 billion parameters in bf16: MFU for several batches, FLOPs by llmb and"
        " by torch's counter, the spread of repeats; a baseline, the verdict on the same runs, and"
        " the verdict on runs that a variable slows, which must be FAIL"
    ),
    "failures": (
        "out of memory, a killed rank, an illegal address, a time limit, a loss of NaN: the log,"
        " and what `explain` says"
    ),
    "profile": "a run with `--profile`, and which of NVIDIA's profilers the machine has",
    "megatron": (
        "megatron-core's layers without Transformer Engine, where it is installed: each model shape"
        " at two layers, its log read by `parse`"
    ),
}
HEAD = """\
# On a GPU

<!-- Written by `python docs/gpu.py` from gpu.json, the results of `make gpu`: edit the script. -->

`make gpu` measures on one machine what llmb claims about GPUs. It needs a checkout and a Python
with torch, transformers and what llmb requires. It installs nothing, fetches nothing, and changes
no setting of the GPU.

<!-- not run: it takes up to 40 minutes on a GPU -->
```console
$ make gpu
$ make gpu PARTS="facts load gemm" OUT=results
```

| part | shows |
|---|---|
"""
TAIL = """
Each part is a process with a time limit of at most 9 minutes. When a part fails, or its limit ends
it, the others follow, and the exit code is 1. A microbenchmark (`gemm`, `memory`, ...) is a part
too. The last lines of the output are the summary. The folder has `results.json`, which is written
after each part, and a `.tar.gz` for each part with logs and the commands' output: 8 files, none
above 16 MiB. A file that does not fit is named in the summary.

On a machine without a GPU the same parts run on the CPU, much smaller; each result then says `CPU,
small`. If `python3` has no torch, `make gpu` first makes the installation of `make demo`.

Without make, `PYTHONPATH=benchmarks python3 -m gpu --out DIR facts load` does the same. `python
docs/gpu.py FOLDER` adds the results of a GPU to this page.
"""
NONE = """
## What has been measured

Nothing yet: no machine with a GPU was at hand, so no figure of llmb comes from a GPU. `make gpu`
has run on CPUs only, and its driver calls against a fake NVML with the values of an H200.
"""


def put(folders: Sequence[str]) -> str | None:
    """Add the results of folders to gpu.json. Returns an error's text."""
    machines = _read()
    for folder in folders:
        path = Path(folder, "results.json")
        try:
            data = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            return f"{path}: {error}; name a folder that `make gpu` wrote"
        machine = data["machine"]
        if machine["gpu"] is None:
            return f"{path}: is from a CPU; run `make gpu` on a machine with a GPU"
        parts = {name: {key: part[key] for key in KEPT} for name, part in data["parts"].items()}
        same = next((known for known in machines if known["machine"] == machine), None)
        if same is None:
            machines.append({"machine": machine, "parts": parts})
        else:
            same["parts"] |= parts
    RESULTS.write_text(json.dumps(machines, indent=1) + "\n", encoding="utf-8")
    return None


def _read() -> list[dict[str, Any]]:
    machines: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))
    return machines


def content(machines: Sequence[Mapping[str, Any]]) -> str:
    """Return the page."""
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in PARTS.items())
    found = "".join(map(_of_machine, machines)) if machines else NONE
    return f"{HEAD}{rows}{TAIL}{found}"


def _of_machine(entry: Mapping[str, Any]) -> str:
    machine, parts = entry["machine"], entry["parts"]
    lines = [
        "",
        f"## {machine['gpu']}, {machine['date']}",
        "",
        f"Driver {machine['driver']}, torch {machine['torch']}, CUDA {machine['cuda']},"
        f" {machine['gpus']} GPU, {machine['cpus']} CPUs, Linux {machine['kernel']}, Python"
        f" {machine['python']}.",
    ]
    for name, part in parts.items():
        lines += ["", f"`{name}` ({part['state']}, {part['seconds']:.0f} s):", "", "```text"]
        lines += [*part["lines"], *(part["reason"] or "").splitlines()]
        lines += [f"not kept: {path} ({size:,} bytes)" for path, size in part["omitted"].items()]
        lines.append("```")
    missing = [f"`{name}`" for name in PARTS if name not in parts]
    lines += ["", f"Not run there: {', '.join(missing)}."] if missing else []
    return "\n".join([*lines, ""])


def main(options: Sequence[str]) -> int:
    """Write the page, or check it."""
    if "--check" in options:
        is_right = PAGE.read_text("utf-8") == content(_read())
        print("gpu is up to date" if is_right else "gpu.md is not up to date: python docs/gpu.py")
        return int(not is_right)
    if error := put(options) if options else None:
        print(f"error: {error}", file=sys.stderr)
        return 2
    PAGE.write_text(content(_read()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
