# SPDX-License-Identifier: Apache-2.0
"""A record of an earlier release, which has the numbers of training among the others, is still readable.

records/earlier/llmb-run.json was written by that release; only paths and the host's name were changed.
"""

import json
from pathlib import Path

from llmb.runs import record

EARLIER = Path(__file__).with_name("records") / "earlier"


def test_earlier_record() -> None:
    written = json.loads((EARLIER / "llmb-run.json").read_text(encoding="utf-8"))["job"]
    job = record.load(EARLIER).job
    numbers = {name: getattr(job.trained, name) for name in ("tp", "pp", "cp", "vp", "ep", "dp", "mbs", "gbs", "ga")}
    assert numbers == {name: written[name] for name in numbers}
    assert job.trained.model.layers == job.trained.num_layers == written["num_layers"]
    assert (job.workload, job.scale, job.max_steps) == ("pretrain_llama3.1", 1, 50)
    assert job.parameters == {}
