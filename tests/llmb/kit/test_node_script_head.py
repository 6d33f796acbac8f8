# SPDX-License-Identifier: Apache-2.0
"""The scheduler's own lines of a script are a list: of a text, each letter would be a line."""

from pathlib import Path

import pytest

from llmb import api
from llmb.errors import KeyFaultError


def test_a_head_that_is_one_text_is_refused(tmp_path: Path) -> None:
    program = api.Program(argv=("true",))
    launch = api.Launch(name="x", nodes=1, ranks_per_node=1, time_limit=60, program=program)
    stamp = api.Stamp(id="x-1", timestamp="1", directory=str(tmp_path))
    config = api.ClusterConfig(cluster_type="pbs", gpu_type="cpu", llmb_install=tmp_path)
    line = "#PBS -l walltime=600"
    with pytest.raises(KeyFaultError) as caught:
        api.node_script(launch, stamp, config, job="$PBS_JOBID", head=line)
    assert caught.value.path == ("head",)
    script = api.node_script(launch, stamp, config, job="$PBS_JOBID", head=[line])
    assert script.splitlines()[1] == line
