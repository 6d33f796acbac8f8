# SPDX-License-Identifier: Apache-2.0
"""How long `archive --anonymous` takes to find and replace names: 5,000 hosts, each in every log.
CPU time.
"""

import time
from pathlib import Path

from llmb.show.archive.names import FoundNames
from llmb.show.archive.redact import anonymous, redaction
from measuring import parser, report

HOSTS, MEGABYTES = 5_000, 20


def main() -> None:
    """Measure how long the names take to find, the pattern to make, and then to apply."""
    options = parser(__doc__)
    options.add_argument("--hosts", type=int, help=f"how many, instead of {HOSTS:,}")
    options.add_argument("--megabytes", type=int, help=f"of logs, instead of {MEGABYTES}")
    arguments = options.parse_args()
    count = arguments.hosts or (50 if arguments.small else HOSTS)
    size = arguments.megabytes or (1 if arguments.small else MEGABYTES)
    hosts = [f"node{number:05}.site.org" for number in range(count)]
    line = (
        "[default0]:{host}:812:812 [0] NCCL INFO Channel 03/0 : 17[7] -> 24[0] [receive] via"
        " NET/IB/3/GDRDMA\n"
    )
    text = "".join(
        line.format(host=hosts[number % count].partition(".")[0]) for number in range(size * 10_000)
    )
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
    print(
        f"{count} hosts: found in {started - began:.2f} s, the pattern {made - started:.2f} s, ",
        end="",
    )
    print(f"1 MB {first - made:.2f} s, ", end="")
    print(f"{len(text) / 1e6:.0f} MB {ended - first:.2f} s")
    report({"find and replace 5,000 hosts in 20 MB, s": ended - began})


if __name__ == "__main__":
    main()
