# SPDX-License-Identifier: Apache-2.0
"""Measures what telemetry costs a node with 8 GPUs, and what reading it costs a command.

The driver is a fake that answers at once, so these are Python's part alone: the driver's own
time comes on top, and only a node with GPUs shows it.
"""

import ctypes
import os
import resource
import tempfile
import time
from pathlib import Path

from llmb.contract.samples import Samples
from llmb.measure import telemetry as reader
from llmb_testing import nvml as fake_nvml
from llmb_testing.nvml import Change
from llmb_workloads import nvml, telemetry
from measuring import parser, report

GPUS = 8
NODES = 64


def cpu() -> float:
    """Return the CPU time of this process in seconds, of the kernel too."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def sample(folder: Path, count: int) -> tuple[float, Path]:
    """Take and write samples as a node does. Return the CPU seconds of each, and the file."""
    library = fake_nvml.build(folder / "lib")
    variables = fake_nvml.environment(library, folder / "script", [Change(key="gpus", value=GPUS)])
    os.environ.update(variables)
    log, path = folder / "log", folder / "telemetry-n1.jsonl"
    log.write_text("")
    with nvml.opened(lambda _: ctypes.CDLL(str(library))) as opened:
        gpus = nvml.gpus_of(opened)
        written = telemetry.SampleFile(path)
        written.add(f'{{"telemetry":1,"host":"n1","first_node":true,"gpus":{GPUS}}}\n')
        begin, start = cpu(), time.time()
        for number in range(count):
            rare = number % telemetry.RARE == 0
            now = start + telemetry.INTERVAL * number
            taken = telemetry.read_sample(opened, gpus, with_rare=rare, log=log, now=now)
            written.add(telemetry.to_line(taken))
        used = cpu() - begin
        written.flush()
    return used / count, path


def read(path: Path, nodes: int) -> float:
    """Return the CPU seconds that reading the files of ``nodes`` nodes takes."""
    text = path.read_text()
    for number in range(2, nodes + 1):
        path.with_name(f"telemetry-n{number}.jsonl").write_text(
            text.replace('"n1"', f'"n{number}"', 1)
        )
    begin = cpu()
    found = reader.nodes_of(Samples(), [*reader.read_folder(path.parent)], None)
    used = cpu() - begin
    assert len(found) == nodes
    return used


def main() -> None:
    """Print what a sample and reading a run cost."""
    small = parser(__doc__).parse_args().small
    count, nodes = (50, 2) if small else (telemetry.DOUBLING, NODES)
    with tempfile.TemporaryDirectory() as name:
        seconds, path = sample(Path(name), count)
        size = path.stat().st_size
        reading = read(path, nodes)
    part = seconds / telemetry.INTERVAL
    print(f"a sample of {GPUS} GPUs: {seconds * 1000:.2f} ms of CPU, {part:.4%} of one core")
    print(f"an hour: {size / 1e6 * 3600 / (count * telemetry.INTERVAL):.2f} MB a node")
    print(f"reading an hour of {nodes} nodes: {reading:.2f} s of CPU")
    report({"1,000 samples of 8 GPUs, s": seconds * 1000, f"read {NODES} nodes, s": reading})


if __name__ == "__main__":
    main()
