# SPDX-License-Identifier: Apache-2.0
"""Counts the system calls and bytes of one submission to a real Slurm, and of one run in a poll.

They are the difference between commands with 22 jobs and with 12, so what a command does once is
not in them. Calls of Slurm's own programs are not counted, only those of llmb that start them.
"""

import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from llmb_testing.slurm import Shape, SlurmKit, missing_packages
from llmb_testing.slurm.daemons import path_of
from measuring import LLMB_RUN, environment, parser, report, run, skip
from submission import WORDS, make_install

FEW, MANY = 12, 22
# The length and depth of the folder are in the counts: paths are written, and each of their folders
# is looked up.
PLACE = "/tmp"
KINDS = ("%file", "%desc", "%network")
READS, WRITES = {"read", "pread64", "readv"}, {"write", "pwrite64", "writev"}
CALL = re.compile(
    r"\d+ +(?P<is_resumed><\.\.\. )?(?P<name>\w+)(?:\(| resumed>)(?:.* = (?P<result>-?\d+))?"
)


def calls(words: list[str], environ: dict[str, str], trace: Path) -> Counter[str]:
    """Return the number of each system call of llmb-run, with the bytes that it read and wrote."""
    # A process is no longer traced when it becomes another program, so the first execve is of
    # llmb-run.
    options = ["-f", "-b", "execve", "-qq", "-e", f"trace={','.join(KINDS)}", "-e", "signal=none"]
    run([str(shutil.which("strace")), *options, "-o", str(trace), LLMB_RUN, *words], env=environ)
    counts: Counter[str] = Counter()
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        match = CALL.match(line)
        assert match is not None, line
        name, result = match["name"], int(match["result"] or 0)
        if not match["is_resumed"]:
            counts["programs started" if name == "execve" else name] += 1
        if name in READS | WRITES:
            counts["bytes read" if name in READS else "bytes written"] += max(result, 0)
    return counts


def main() -> None:
    """Print the numbers of each call."""
    parser(__doc__).parse_args()
    if missing := [
        *missing_packages(accounting=False),
        *([] if shutil.which("strace") else ["strace"]),
    ]:
        skip(f"not here: apt-get install --no-install-recommends {' '.join(missing)}")
    counts: dict[tuple[str, int], Counter[str]] = {}
    with (
        SlurmKit(Shape(accounting=False)) as kit,
        tempfile.TemporaryDirectory(prefix="calls-", dir=PLACE) as name,
    ):
        folder = Path(name)
        # Each folder of PATH is tried for each program.
        path = str(Path(path_of("sbatch")).parent)
        environ = {
            **environment(),
            **kit.environ,
            "HOME": name,
            "PATH": path,
            "PYTHONHASHSEED": "0",
        }
        for jobs in (FEW, MANY):
            where = ["--install", str(make_install(folder / str(jobs)))]
            # The first submission copies programs into the install directory. First commands
            # compile modules.
            run([LLMB_RUN, *WORDS, *where], env=environ)
            run([LLMB_RUN, "jobs", "list", *where], env=environ)
            commands = {
                "submission": [*WORDS, "--repeats", str(jobs), *where],
                "poll": ["jobs", "list", *where],
            }
            for kind, words in commands.items():
                counts[kind, jobs] = calls(words, environ, folder / "trace")
            kit.run("scancel", "--state=PENDING")
    figures: dict[str, float] = {}
    for kind in ("submission", "poll"):
        more = counts[kind, MANY]
        more.subtract(counts[kind, FEW])
        shares = {name: number / (MANY - FEW) for name, number in sorted(more.items()) if number}
        print(f"{kind}: {', '.join(f'{name} {number:g}' for name, number in shares.items())}")
        for name in ("bytes read", "bytes written", "programs started"):
            figures[f"{kind}: {name}"] = shares.pop(name, 0)
        figures[f"{kind}: system calls"] = sum(shares.values())
    # llmb-run
    figures["poll: programs started by the command"] = counts["poll", FEW]["programs started"] - 1
    report(figures)


if __name__ == "__main__":
    main()
