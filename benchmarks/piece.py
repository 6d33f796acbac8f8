# SPDX-License-Identifier: Apache-2.0
"""Does one piece of work, whose instructions instructions.py counts, or none: plan FOLDER, read
LOG, reference.
"""

import gc
import os
import sys
from pathlib import Path

from llmb.builtin.plugins import builtin_plugins
from llmb.measure.log_reader import read_log
from llmb.plan.config_layers import load_config
from llmb.plan.joblist import read_job_list
from llmb.plan.plan import make_plan
from llmb.plugins.guarded_cluster import create
from llmb.plugins.loader import load_plugins
from llmb.run.prepare import prepare, preview
from llmb_installer.cluster_types import all_types


def plan(folder: Path) -> None:
    """Plan the job list in an install directory, with the script of each job."""
    config, _ = load_config(folder, os.environ, cluster_types=all_types)
    plugins = load_plugins(builtin_plugins())
    cluster = create(plugins.cluster_types()[config.cluster_type], config)
    made = make_plan(read_job_list(folder / "jobs.yaml").entries, plugins.workloads(), config)
    items, faults = prepare(made, plugins, config)
    assert not faults
    assert all(preview(item, cluster, config) for item in items)
    print(len(items))


def read(log: Path) -> None:
    """Read a log."""
    print(len(read_log(log).steps))


class Pair:
    """Two values and a method, for the reference."""

    def __init__(self, number: int, name: str) -> None:
        """Keep both."""
        self.number, self.name = number, name

    def plus(self, number: int) -> int:
        """Return the sum."""
        return self.number + number


def reference() -> None:
    """Make objects, texts, mappings and lists, without anything of llmb."""
    pairs, lists = {}, []
    for number in range(20_000):
        pair = Pair(number, str(number))
        pairs[pair.name] = pair
        lists.append(f"{pair.name}={pair.plus(3)}".split("="))
    print(len(sorted(lists)), sum(pair.plus(1) for pair in pairs.values()))


def main() -> None:
    """Do the work that the command line names."""
    gc.freeze()  # what was imported is not looked at again, however much it is
    match sys.argv[1:]:
        case ["plan", folder]:
            plan(Path(folder))
        case ["read", log]:
            read(Path(log))
        case ["reference"]:
            reference()


if __name__ == "__main__":
    main()
