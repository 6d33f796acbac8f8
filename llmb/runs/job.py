# SPDX-License-Identifier: Apache-2.0
"""JobRequest, what a user asks for, and Job, the result of planning: one job with all its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmb.errors import Fault, UsageError
from llmb.workload.model import ModelShape
from llmb.workload.switches import NO_SWITCHES, Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One task of a job list or one set of options, names as written: dtypes × scales × param values × repeats jobs.

    ``size`` None is the workload's default. ``params`` maps a name of ``switches.PARAMS`` to the values to sweep,
    ``parameters`` a name that the workload declares.
    ``add_profile`` adds one profiled job to each configuration. ``framework`` None is what the size and the install
    have, ``release`` (of Megatron-Bridge's images) None the newest; ``dotted``: settings of the framework by dotted
    path. ``slurm``: options of sbatch by long name. ``place`` is the task's file and line (``jobs.txt:4``),
    ``header`` those of its workload; ``places`` those of each dtype and scale, ``key_places`` those of each key that is
    set. A ``faulty`` request was read only in part: it
    is checked further, and never becomes a job.
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
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    framework: str | None = None
    release: str | None = None
    dotted: Mapping[str, str | float | bool | None] = field(default_factory=dict)
    switches: Switches = NO_SWITCHES
    slurm: Mapping[str, str] = field(default_factory=dict)
    place: str = ""
    header: str = ""
    places: Mapping[str | int, str] = field(default_factory=dict)
    key_places: Mapping[str, str] = field(default_factory=dict)
    faulty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """A job list as read: its valid requests, every fault of the others, and notes about what was read otherwise."""

    requests: tuple[JobRequest, ...] = ()
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The numbers of a job that trains a model. Batches in samples, ``seq_length`` in tokens.

    ``ga`` (gradient accumulation) = gbs / (mbs · dp); ``dp`` = scale / (tp · pp · cp); ``vp``: virtual pipeline stages,
    None without; ``ep``, ``etp``: ways in which experts, and then the matrices of each, are split, 1 for a dense model.
    ``model`` has the job's own layer count, ``num_layers``.
    """

    model: ModelShape
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
    learning_rate: float
    etp: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, complete. ``time_limit`` in seconds, ``scale`` in GPUs.

    ``gpu_type`` is the cluster's name for it; ``training``: None if the workload trains no model; ``parameters``: the
    values of the workload's own parameters, as text. ``switches``: those that no other field has. ``vboost``: whether
    the script raises it on each node first, None where llmb does not set it. ``framework``: whose rows it follows;
    ``release``: for Megatron-Bridge, the release of the image; ``rows_of``: the GPU type whose rows of Megatron-Bridge
    it uses, None for its own; ``dotted``: the user's values for settings of the framework, by dotted path.
    """

    workload: str
    model_size: str
    dtype: str
    gpu_type: str
    scale: int
    repeat: int
    profile: bool
    env: Mapping[str, str]
    max_steps: int
    nodes: int
    gpus_per_node: int
    time_limit: int
    image: str | None
    experiment_name: str
    training: Training | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    switches: Switches = NO_SWITCHES
    vboost: bool | None = None
    framework: str = "nemo"
    release: str | None = None
    rows_of: str | None = None
    dotted: Mapping[str, str | float | bool | None] = field(default_factory=dict)

    @property
    def trained(self) -> Training:
        """Its ``training``. Raises UsageError for a job that trains no model."""
        if self.training is None:
            message = f"{self.experiment_name}: {self.workload} trains no model"
            hint = "its plugin must implement the hook llmb_launch, which names the program"
            raise UsageError(message, hint=hint, code="not-training", key="model", value=self.workload)
        return self.training
