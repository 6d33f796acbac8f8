# SPDX-License-Identifier: Apache-2.0
"""Writes reliability.md from reliability.json, what `make test-faults` counted.

With files of counts (LLMB_TEST_PROOF wrote them) it first puts these into reliability.json; with
--check it reports whether the page is as the file has it; with --show FILE it prints the table of
one run, and ends 1 when a test failed or a fault of the page was not tried.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).with_name("reliability.md")
RESULTS = PAGE.with_suffix(".json")
COLUMNS = ("tried", "lost", "doubled", "tracebacks", "wrong_ends", "failed")

# The faults, by the name in a test's mark `fault`: what is done to llmb.
FAULTS = {
    "slurm-kills": (
        "kill -9 of `llmb-run` while it submits 40 runs to a real Slurm, then `reconcile` and"
        " `--resume`"
    ),
    "slurm-restarts": "Slurm's controller restarted while `llmb-run` submits",
    "slurm-trouble": (
        "Slurm's controller or accounting stopped, paused, restarted, or without memory of a job"
    ),
    "sbatch-hangs": "Ctrl-C, and again, while sbatch hangs",
    "submit-kills": (
        "kill -9 of `llmb-run` while it submits 40 runs to a mock scheduler; two `jobs reconcile`"
        " at once"
    ),
    "again-kills": (
        "kill -9 of `llmb-run` again and again while it resumes a list, retries runs, or submits"
        " the rest of a list to a full queue"
    ),
    "submit-races": "several `llmb-run` at once on the same list",
    "full-queue": "a queue without a free place: limits of an association, and MaxJobCount",
    "two-clusters": "a site with two Slurm clusters, and variables that select the other one",
    "private-data": "a Slurm that hides partitions, nodes and jobs of others from a plain user",
    "network-files": (
        "several hosts, as namespaces, on files with whole seconds, late visibility and creation"
        " that is not exclusive"
    ),
    "clocks": "clocks that are set back or ahead, and the hour that a time zone has twice",
    "host-names": "two hosts whose names are 127.0.1.1 to themselves, as network namespaces",
    "poisoned-shell": "PYTHONPATH and LD_LIBRARY_PATH for other programs in the caller's shell",
    "odd-answers": "a scheduler that no longer knows a run, and commands that ask another cluster",
    "leftovers": "files and folders that a killed submission left behind",
    "runai-kills": "kill -9 of `llmb-run` while it submits 30 runs to the mock of Run:ai's API",
    "runai-answers": "Run:ai's API: lost, cut, odd and refused answers",
    "local-kills": (
        "kill -9 of the submitter and then of the supervisor of the local queue, with 6 runs"
    ),
    "full-disk": (
        "a disk that fills while local runs wait or by the log of one; the supervisor alive, and"
        " killed"
    ),
    "own-files": "files of llmb damaged: records, states, journals, locks",
    "own-files-commands": "commands on an install with damaged, empty, newer or unreadable files",
    "logs": "logs damaged: every reader of logs, and the search for causes",
    "readers": (
        "files of users and answers of other programs damaged: lists, configuration, pip, docker,"
        " Slurm, Run:ai"
    ),
    "failing-files": (
        "stale handles, read errors, full quotas and read-only file systems in the folder of one"
        " run, and a pipe as its log"
    ),
    "foreign-files": (
        "files of others: pipes, devices and files without an end; lists of nodes that would fill"
        " the memory; texts and numbers that no file can have; odd folders to import"
    ),
    "archives": (
        "archives with sparse files, long headers, too much content or another manifest; links to"
        " private files; a killed writer"
    ),
    "odd-servers": (
        "servers with wrong gzip, deep JSON, bad realms, redirects without a place or an end, sizes"
        " that are no numbers"
    ),
    "users": "other users: processes hidden by hidepid 0, 1 and 2, umask 077, clocks that differ",
    "start": "Ctrl-C while a command starts, from llmb's first line on",
    "install-kills": "kill -9 of `llmb-install`, then the same command again",
    "install-interrupts": (
        "`llmb-install` interrupted, killed in a download, given twice at once, or without its"
        " terminal"
    ),
    "image-kills": "kill -9 of `sqshpull` while it builds an image, then the same command again",
}
HEAD = """\
# Reliability

<!-- Written by `python docs/reliability.py` from reliability.json (`make test-faults`). -->

## What llmb guarantees

- A job is submitted once. A submission that is killed, or whose answer is lost or unreadable, is
  looked up by name before anything is sent again.
- A run's end is final only when there is evidence of it: the scheduler's answer, the run's own
  files, or a restart of the machine. `LOST` needs two looks at the cluster that took the run, and
  later evidence corrects it.
- A damaged, empty, unreadable or newer file costs one row and a warning that names the file. Keys
  of a newer release are kept.
- A full queue refuses nothing: the rest of a list stays as it is, and is submitted later, each job
  once.
- A full disk stops the local queue with its cause, and the queue continues when there is space.
- Files of a shared install have the permissions of the install directory, also those that a job
  writes.
- Files and servers of others cost an error of their own: pipes, devices, files without an end, a
  failing file system, odd archives and odd answers stop no command and cause no traceback.
- An installation that is killed continues with the same command, and installs nothing twice.
- Ctrl-C ends a command without a traceback, from llmb's first line on.

## How it is tested

`make test-faults` breaks these things many times and writes this table. `LLMB_TEST_KILLS`,
`LLMB_TEST_RESTARTS` and `LLMB_TEST_FUZZ` set the counts, `ARGS` goes to pytest. `make test` does
all of it with small counts; `.ci/run` prints their table and fails where a fault was not tried.
Kills come at random moments; each test has its own seed, so that you can repeat it.

*Tried* counts the kills, inputs or cases. *Lost* runs were recorded and not in the scheduler;
*doubled* runs were in the scheduler twice or without a record. *Wrong ends* are exit codes, states
or messages other than the right ones. An empty field was not counted by itself: a test that sees
such a thing fails.
"""
TAIL = """\
## What is not tested

- Power loss of a machine. Records and their folders are synced, and nobody has pulled a plug.
- Real NFS, Lustre and other network file systems. Locks rely on hard links and, where there are
  none, on `O_EXCL`. A shim makes exclusive creation not atomic, times whole seconds and changes
  visible late; hard links stay atomic.
- Run:ai itself. Its mock is held against the models of the official client.
- Slurm with more than one controller, and a controller that comes back with an older state.
- Slurm's accounting lost or cut off in the middle of an answer.
- A Ctrl-C before llmb's first line. Python itself then prints a traceback, while it imports `site`
  and the packages' `.pth` files. That takes about as long as `python -c pass`. Of 150 interrupts in
  the first 0.3 s of `llmb-run` on a busy machine, where `python -c pass` took 0.1 s, Python's start
  printed 37 tracebacks and llmb none.
"""

Counts = Mapping[str, int]


def counted(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Sums of a file of counts, by fault. A skipped test adds only to `skipped`."""
    sums: dict[str, Counter[str]] = {}
    for line in lines:
        data = json.loads(line)
        own = sums.setdefault(data.pop("fault"), Counter())
        for name, number in data.items():
            own[name] += int(number)  # keeps a zero: it was counted, and there was none
    return {fault: dict(own) for fault, own in sums.items()}


def table(results: Mapping[str, Counts]) -> str:
    """One row for each fault, in the order of FAULTS."""
    heads = ["Fault", *(name.replace("_", " ").capitalize() for name in COLUMNS)]
    rows = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for fault, text in FAULTS.items():
        own = results.get(fault, {})
        cells = [f"{own[name]:,}" if name in own else "" for name in COLUMNS]
        rows.append(f"| {' | '.join([text, *cells])} |")
    return "\n".join(rows) + "\n"


def page(results: Mapping[str, Counts]) -> str:
    """The whole page."""
    return "\n".join([HEAD, table(results), TAIL])


def faults_of(results: Mapping[str, Counts]) -> list[str]:
    """What is wrong with the counts of one run: failed tests, faults that were not tried, names
    without a row.
    """
    wrong = [
        f"{fault}: {own['failed']} failed" for fault, own in results.items() if own.get("failed")
    ]
    wrong += [f"{fault}: not tried" for fault in FAULTS if not sum(results.get(fault, {}).values())]
    return wrong + [
        f"{fault}: no row in docs/reliability.py" for fault in results if fault not in FAULTS
    ]


def read() -> dict[str, dict[str, int]]:
    """The counts that the page shows."""
    found: dict[str, dict[str, int]] = (
        json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    )
    return found


def show(path: Path) -> int:
    """Print the table of one run; 1 when something of it is wrong."""
    results = counted(path.read_text("utf-8").splitlines())
    print(table(results))
    wrong = faults_of(results)
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


def main(arguments: Sequence[str]) -> int:
    """Put counts into the page, check it, or show the counts of one run."""
    if arguments[:1] == ["--show"]:
        return show(Path(arguments[1]))
    if "--check" in arguments:
        is_right = PAGE.exists() and PAGE.read_text("utf-8") == page(read())
        fix = (
            "is as reliability.json has it"
            if is_right
            else "is out of date: run `python docs/reliability.py`"
        )
        print(f"docs/reliability.md {fix}")
        return 0 if is_right else 1
    new = counted(line for name in arguments for line in Path(name).read_text("utf-8").splitlines())
    results = {fault: own for fault, own in {**read(), **new}.items() if fault in FAULTS}
    ordered = {fault: results[fault] for fault in FAULTS if fault in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(ordered), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
