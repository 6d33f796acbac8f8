# SPDX-License-Identifier: Apache-2.0
"""Job, the result of planning with all its numbers."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from llmb.contract.model import ModelShape
from llmb.contract.model_settings import Trained, trained_with
from llmb.contract.settings import SPLIT, Settings
from llmb.contract.software import Software
from llmb.contract.switches import NO_SWITCHES, SettingValue, Switches, given_switches
from llmb.core.values import dataclass
from llmb.errors import UsageError

NOT_TRAINING = "not-training"  # the code of an error about a job that trains no model


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The numbers of a job that trains a model."""

    #: The model, with the job's own layer count.
    model: ModelShape
    tp: int
    pp: int
    cp: int
    #: Virtual pipeline stages, None without.
    vp: int | None
    #: Ways in which experts are split, 1 for a dense model.
    ep: int
    #: Data parallel ways, scale / (tp · pp · cp).
    dp: int
    #: Micro batch in samples.
    mbs: int
    #: Global batch in samples.
    gbs: int
    #: Gradient accumulation, gbs / (mbs · dp).
    ga: int
    #: In tokens.
    seq_length: int
    num_layers: int
    learning_rate: float
    #: Ways in which the matrices of each expert are split.
    etp: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, complete."""

    workload: str
    model_size: str
    dtype: str
    #: The cluster's name for it.
    gpu_type: str
    #: In GPUs.
    scale: int
    repeat: int
    profile: bool
    env: Mapping[str, str]
    max_steps: int
    nodes: int
    gpus_per_node: int
    #: In seconds.
    time_limit: int
    image: str | None
    experiment_name: str
    #: None if the workload trains no model.
    training: Training | None = None
    #: The values of the workload's own parameters, as text.
    parameters: Mapping[str, str] = field(default_factory=dict)
    #: The switches that no other field has.
    switches: Switches = NO_SWITCHES
    #: The script raises it on each node first; None if llmb does not set it.
    vboost: bool | None = None
    #: Whose rows it follows.
    framework: str = "nemo"
    #: The release of the image, for Megatron-Bridge.
    release: str | None = None
    #: The GPU type whose rows of Megatron-Bridge it uses, None for its own.
    rows_of: str | None = None
    #: The user's values for settings of the framework, by dotted path.
    dotted: Mapping[str, SettingValue] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Return its settings. Usual values of ``fp8`` and ``tokenizer`` are None."""
        return self.settings_with(None)

    def settings_with(self, software: Software | None) -> Settings:
        """Return its settings on a cluster with ``software``."""
        switches, trained = self.switches, self.with_dotted
        values: dict[str, Any] = given_switches(switches)
        values |= {name: getattr(self, name) for name in _SHARED}
        if self.training is not None:
            values |= {name: getattr(self.training, name) for name in SPLIT}
        values |= {name: None for name, usual in _USUAL.items() if values.get(name) == usual}
        values |= {
            "gbs": trained.gbs,
            "seq_length": trained.seq_length,
            "num_layers": self.num_layers,
            "changes": trained.changes,
            "nccl_trace": bool(switches.nccl_trace),
            "stragglers": switches.stragglers or None,
            "saves": bool(switches.save_checkpoint),
            "loads": switches.load_checkpoint is not None,
        }
        return Settings(**values, software=software)

    @property
    def with_dotted(self) -> Trained:
        """Return the model, batch and sequence with the ``dotted`` settings that change them."""
        training = self.training
        return trained_with(
            self.dotted,
            self.framework,
            None if training is None else training.model,
            None if training is None else training.gbs,
            None if training is None else training.seq_length,
        )

    @property
    def gbs(self) -> int | None:
        """Return the global batch in samples, or None if it trains no model."""
        return self.with_dotted.gbs

    @property
    def seq_length(self) -> int | None:
        """Return the sequence length in tokens, or None if it trains no model."""
        return self.with_dotted.seq_length

    @property
    def num_layers(self) -> int | None:
        """Return the layer count of its model, or None if it trains none."""
        if self.training is not None and not self.dotted:
            return self.training.num_layers
        return self.with_dotted.num_layers

    @property
    def changes(self) -> Mapping[str, SettingValue]:
        """Return the ``dotted`` settings that change its model or dtype, as in ``Trained``."""
        return self.with_dotted.changes

    @property
    def trained(self) -> Training:
        """Its ``training``. Raises UsageError for a job that trains no model."""
        if self.training is None:
            message = f"{self.experiment_name}: {self.workload} trains no model"
            hint = "its plugin must implement the hook llmb_launch, which names the program"
            raise UsageError(
                message, hint=hint, code=NOT_TRAINING, key="model", value=self.workload
            )
        return self.training


_USUAL = {"fp8": "delayed", "tokenizer": "null"}
# its time limit is in seconds, theirs in words
_SHARED = {own.name for own in fields(Job)} & {own.name for own in fields(Settings)}
_SHARED -= {"time_limit"}
