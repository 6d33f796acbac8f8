# SPDX-License-Identifier: Apache-2.0
"""The smallest job for tests of cluster types: one rank, a tiny model, no real workload."""

from llmb.contract.job import Job, Training
from llmb.contract.model import ModelShape

SMALLEST_MODEL = ModelShape(
    architecture="llama", layers=2, hidden=8, ffn=8, heads=2, kv_groups=2, vocab=8, seq_length=8
)
SMALLEST_JOB = Job(
    workload="w",
    model_size="tiny",
    dtype="fp32",
    gpu_type="h100",
    scale=1,
    repeat=1,
    profile=False,
    env={},
    max_steps=1,
    nodes=1,
    gpus_per_node=1,
    time_limit=60,
    image=None,
    experiment_name="x",
    training=Training(
        model=SMALLEST_MODEL,
        tp=1,
        pp=1,
        cp=1,
        vp=None,
        ep=1,
        dp=1,
        mbs=1,
        gbs=1,
        ga=1,
        seq_length=8,
        num_layers=2,
        learning_rate=1e-3,
    ),
)
