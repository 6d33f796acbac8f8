# SPDX-License-Identifier: Apache-2.0
"""python megatron_splits.py CASES.json FOUND.json: Megatron core's error for each case. No GPU.

Run by the NeMo environment's Python. A case has the fields of TransformerConfig, and those of Mamba
layers.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig


def refusal(case: dict[str, Any]) -> str:
    """The error of Megatron's configuration or of its count of layers of a stage, or an empty
    string.
    """
    parallel_state.set_pipeline_model_parallel_rank(0)
    parallel_state.set_pipeline_model_parallel_world_size(case["pipeline_model_parallel_size"])
    vp = case["virtual_pipeline_model_parallel_size"]
    parallel_state.set_virtual_pipeline_model_parallel_world_size(vp)
    parallel_state.set_virtual_pipeline_model_parallel_rank(None if vp is None else 0)
    try:
        get_num_layers_to_build(TransformerConfig(pipeline_dtype=torch.bfloat16, **case))
    except (ValueError, AssertionError) as error:
        return str(error) or type(error).__name__
    return ""


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(
        json.dumps({name: refusal(case) for name, case in cases.items()}), encoding="utf-8"
    )
