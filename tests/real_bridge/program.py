# SPDX-License-Identifier: Apache-2.0
"""python program.py RECIPE.json [--print]: llmb's program with the mocks, and with a training that
only reports.
"""

import importlib
import os
import sys
from typing import Any

mocks = importlib.import_module("mocks")


class Late:
    """Installs the mocks when the library is first looked for, so that the program starts as on a
    cluster.
    """

    def find_spec(self, fullname: str, *_: object) -> None:
        """Nothing; the mocks are installed once."""
        if fullname == "megatron" and self in sys.meta_path:
            sys.meta_path.remove(self)
            mocks.install()
            mocks.pretend_gpu("gb300")
            if "--print" not in sys.argv:
                training = importlib.import_module("megatron.bridge.training.pretrain")
                vars(training)["pretrain"] = pretrain


def pretrain(config: Any, forward_step_func: Any) -> None:
    """In place of the library's, after its check of the configuration."""
    config.validate()
    step = f"{forward_step_func.__module__}.{forward_step_func.__qualname__}"
    print(
        f"pretrain: {type(config).__name__} {step} {os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS')}",
        flush=True,
    )


if __name__ == "__main__":
    sys.meta_path.insert(0, Late())
    sys.exit(importlib.import_module("llmb_workloads.bridge_pretrain.__main__").main(sys.argv[1:]))
