# SPDX-License-Identifier: Apache-2.0
"""How long `archive --anonymous` takes to find and replace names: 5,000 hosts, each in every log. CPU time.

An argument is the number of hosts, another one the megabytes of logs.
"""

import sys
import time
from pathlib import Path

from llmb.archive.names import FoundNames
from llmb.archive.redact import anonymous, redaction

HOSTS, MEGABYTES = 5_000, 20


def main() -> None:
    """Measure how long the names take to find, the pattern to make, and then to apply."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else HOSTS
    size = int(sys.argv[2]) if len(sys.argv) > 2 else MEGABYTES
    hosts = [f"node{number:05}.site.org" for number in range(count)]
    line = "[default0]:{host}:812:812 [0] NCCL INFO Channel 03/0 : 17[7] -> 24[0] [receive] via NET/IB/3/GDRDMA\n"
    text = "".join(line.format(host=hosts[number % count].partition(".")[0]) for number in range(size * 10_000))
    names = anonymous({"ana"}, hosts, {Path("/lustre/ana/llmb"): "/llmb"}, {"moon": "cluster1"})
    began = time.process_time()
    FoundNames().add(text)
    started = time.process_time()
    own = redaction([], names)
    own.apply("")
    made = time.process_time()
    own.apply(text[:1_000_000])
    first = time.process_time()
    own.apply(text)
    ended = time.process_time()
    print(f"{count} hosts: found in {started - began:.2f} s, the pattern {made - started:.2f} s, ", end="")
    print(f"1 MB {first - made:.2f} s, ", end="")
    print(f"{len(text) / 1e6:.0f} MB {ended - first:.2f} s")


if __name__ == "__main__":
    main()
