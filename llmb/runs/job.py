# SPDX-License-Identifier: Apache-2.0
"""JobRequest, what a user asks for, and Job, what follows from it: one job with every number settled."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmb.errors import Fault
from llmb.workload.model import ModelShape
from llmb.workload.switches import NO_SWITCHES, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One task of a job list or one set of options, names as written: dtypes × scales × param values × repeats jobs.

    ``size`` None is the workload's default. ``params`` maps a name of ``switches.PARAMS`` to the values to sweep.
    ``add_profile`` adds one profiled job to each configuration. ``place`` is the task's file and line (``jobs.txt:4``),
    ``header`` those of its workload; ``places`` those of each dtype and scale, ``key_places`` those of each key that is
    set. A ``faulty`` request was read only in part: it is checked further, and never becomes a job.
    """

    workload: str
    size: str | None = None
    dtypes: tuple[str, ...] = ()
    scales: tuple[int, ...] = ()
    repeats: int = 1
    profile: bool = False
    add_profile: bool = False
    proxy: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    switches: Switches = NO_SWITCHES
    place: str = ""
    header: str = ""
    places: Mapping[str | int, str] = field(default_factory=dict)
    key_places: Mapping[str, str] = field(default_factory=dict)
    faulty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """A job list as read: its valid requests, and every fault of the others."""

    requests: tuple[JobRequest, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, complete. Batches in samples, ``time_limit`` in seconds, ``scale`` in GPUs.

    ``ga`` (gradient accumulation) = gbs / (mbs · dp); ``dp`` = scale / (tp · pp · cp). ``gpu_type`` is the cluster's
    name for it; ``model`` has the job's own layer count. ``switches``: those that no other field has.
    ``vboost``: whether the script raises it on each node before the training, None where llmb does not set it.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str
    scale: int
    repeat: int
    profile: bool
    env: Mapping[str, str]
    tp: int
    pp: int
    cp: int
    vp: int | None
    ep: int
    dp: int
    mbs: int
    gbs: int
    ga: int
    seq_length: int
    num_layers: int
    max_steps: int
    nodes: int
    gpus_per_node: int
    time_limit: int
    image: str | None
    experiment_name: str
    model: ModelShape
    learning_rate: float
    switches: Switches = NO_SWITCHES
    vboost: bool | None = None
