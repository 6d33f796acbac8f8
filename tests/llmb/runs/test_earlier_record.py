# SPDX-License-Identifier: Apache-2.0
"""A record of an earlier release, which has the numbers of training among the others, is still readable.

records/earlier/llmb-run.json was written by that release; only paths and the host's name were changed.
"""

import json
import shutil
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


def test_a_file_of_a_plugin_may_have_a_name_that_llmb_uses_since(tmp_path: Path) -> None:
    """A launch of now may not, but what ran is shown all the same."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "llmb-run.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["launch"]["files"] = [{"name": "reader.json", "text": "{}"}]
    path.write_text(json.dumps(data), encoding="utf-8")
    assert [staged.name for staged in record.load(tmp_path).launch.files] == ["reader.json"]
