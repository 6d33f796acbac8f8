# SPDX-License-Identifier: Apache-2.0
"""python -m gpu [PART...]: measures llmb on the GPU of this machine, or small on its CPU.

Nothing is installed or fetched, no setting of the GPU is changed. The parts run one after another,
each in a process with a time limit. A part that fails stops no other; the exit code is then 1.
"""

import argparse
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu.catalogue import ALL, DEFAULT
from gpu.context import ROOT, Context, search_path
from gpu.runner import DONE, MOST_PARTS, MOST_SECONDS, NOT_RUN, Part, run_parts, summary

_TORCH = """\
import json, torch
has = torch.cuda.is_available()
print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0) if has else None,
                  "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda}))
"""


def ask_torch(python: str) -> dict[str, Any] | None:
    """Return what torch of this Python says of the machine, or None without torch."""
    done = subprocess.run([python, "-c", _TORCH], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _describe(torch: dict[str, Any]) -> dict[str, Any]:
    from llmb_workloads import nvml

    with nvml.opened() as library:
        driver = None if library is None else nvml.read_text(library, "nvmlSystemGetDriverVersion")
    return {
        **torch,
        "driver": driver,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _part(word: str) -> Part:
    """Return the part of a name, or a module on PYTHONPATH: NAME=MODULE:SECONDS."""
    name, is_own, rest = word.partition("=")
    if is_own:
        module, _, seconds = rest.partition(":")
        return Part(name=name, module=module, limit=int(seconds or MOST_SECONDS))
    if word not in ALL:
        raise argparse.ArgumentTypeError(f"'{word}' is no part; choose from {', '.join(ALL)}")
    return ALL[word]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    names = f"{' '.join(DEFAULT)} (default: all of these), or one microbenchmark"
    parser.add_argument("parts", nargs="*", type=_part, metavar="PART", help=names)
    parser.add_argument("--out", type=Path, default=ROOT / ".gpu", help="folder of the results")
    parser.add_argument("--torch", default=sys.executable, help="a Python that has torch")
    parser.add_argument(
        "--check", action="store_true", help="only see if torch and llmb can be imported"
    )
    return parser.parse_args()


def main() -> int:
    """Run the parts and print the summary last."""
    options = _arguments()
    python = shutil.which(options.torch)
    torch = None if python is None else ask_torch(python)
    if python is None or torch is None:
        print(f"error: {options.torch} has no torch; --torch names another Python", file=sys.stderr)
        return 2
    if options.check:
        importlib.import_module("llmb.cli.app")  # and what llmb requires
        return 0
    parts = options.parts or [ALL[name] for name in DEFAULT]
    if len(parts) > MOST_PARTS:
        print(f"error: {len(parts)} parts; at most {MOST_PARTS} have a file", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="llmb-gpu-", ignore_cleanup_errors=True) as folder:
        # Not resolved: a link to a Python is how an environment is found.
        python = str(Path(python).absolute())
        context = Context(folder=Path(folder), torch_python=python, machine=_describe(torch))
        outcomes = run_parts(parts, options.out, context)
    print("\n".join(summary(context, outcomes)), flush=True)
    print(f"Results: {options.out}", flush=True)
    return int(any(outcome.state not in (DONE, NOT_RUN) for outcome in outcomes.values()))


if __name__ == "__main__":
    folders = [search_path(), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = ":".join(folders)
    sys.path[1:1] = search_path().split(":")
    sys.exit(main())
