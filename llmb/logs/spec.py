# SPDX-License-Identifier: Apache-2.0
"""How a workload's log is read, as a value that a plugin can give."""

from dataclasses import dataclass, field

from llmb.logs.samples import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseSpec:
    """Which lines are steps and which keys they hold.

    ``needle``: text that every step's line has and few others; ``iteration``: a pattern with the groups ``i`` (counted
    from ``first_iteration``) and, where the lines have it, ``last``; ``keys`` maps our names (``step_time``,
    ``tflops``, ``loss``, ``grad_norm``, ``gbs``, ``consumed_samples``, ``global_step``, ``peak_memory``,
    ``tokens_rate``: tokens per second of one GPU) to the log's, ``a|b`` where it has either; ``units`` has what their
    values are multiplied by to be s, TFLOPS or bytes; ``redrawn``: a step's line is printed again as it changes, and
    the last one counts. ``tflops_valid`` False marks the framework's own TFLOPS as wrong for this model, with
    ``tflops_note`` saying why. A spec for NeMo 2's lines takes those of every other program that llmb knows as well.
    ``samples``: what a plugin has read of the log by itself, with nothing left to look for. ``source``: the plugin that
    gives the spec, for messages; llmb fills it in.
    """

    needle: str = "train_step_timing in s"
    iteration: str = r"iteration (?P<i>\d{1,12})/(?P<last>\d{1,12})"
    keys: dict[str, str] = field(
        default_factory=lambda: {
            "step_time": "train_step_timing in s",
            "tflops": "TFLOPS_per_GPU",
            "loss": "reduced_train_loss",
            "grad_norm": "gradient_norm|grad_norm",
            "gbs": "global_batch_size",
            "consumed_samples": "consumed_samples",
            "global_step": "global_step",
            "peak_memory": "peak_memory_usage|max_memory_reserved",
        }
    )
    tflops_valid: bool = True
    tflops_note: str = ""
    first_iteration: int = 0
    units: dict[str, float] = field(default_factory=dict)
    redrawn: bool = False
    samples: Samples | None = None
    source: str = ""
