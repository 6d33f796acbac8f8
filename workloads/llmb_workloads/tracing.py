# SPDX-License-Identifier: Apache-2.0
"""A torch.profiler trace of a few steps, one file for each rank."""

from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from llmb_workloads.device import Device
from llmb_workloads.torch_recipe import Profile
from llmb_workloads.world import Place


class Tracer:
    """Told of every step before it begins; starts and stops the profiler where the recipe says."""

    def __init__(self, wanted: Profile | None, place: Place, device: Device) -> None:
        self._wanted = wanted
        self._rank = place.rank
        self._activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.is_gpu else [])
        self._profiler: Any = None
        if wanted is not None:
            # Now, so that a folder that cannot be made ends the run before it costs time.
            Path(wanted.dir).mkdir(parents=True, exist_ok=True)

    def before(self, step: int) -> None:
        """Start or stop tracing if this is the step; max_steps itself stands for the end."""
        if self._wanted is not None and step == self._wanted.start_step:
            self._profiler = profile(activities=self._activities)
            self._profiler.start()
        if self._wanted is not None and step == self._wanted.stop_step:
            self._profiler.stop()
            trace = Path(self._wanted.dir) / f"rank{self._rank}.pt.trace.json"
            self._profiler.export_chrome_trace(str(trace))
