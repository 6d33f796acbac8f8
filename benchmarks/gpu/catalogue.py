# SPDX-License-Identifier: Apache-2.0
"""The parts that `make gpu` has, the most telling first."""

from gpu.runner import Part

CASES = ("gemm", "memory", "host_to_device", "launch", "storage", "all_reduce")
DEFAULT = {
    part.name: part
    for part in (
        Part(name="facts", module="gpu.facts", limit=120),
        Part(name="load", module="gpu.load", limit=300),
        Part(name="microbench", module="gpu.microbench", limit=420),
        Part(name="train", module="gpu.train", limit=540),
        Part(name="failures", module="gpu.failures", limit=300),
        Part(name="profile", module="gpu.profiled", limit=240),
        Part(name="megatron", module="gpu.megatron_layers", limit=240),
    )
}
#: One case of the microbenchmarks is a part too.
ALL = DEFAULT | {
    case: Part(name=case, module="gpu.microbench", limit=240, words=(case,)) for case in CASES
}
