# SPDX-License-Identifier: Apache-2.0
"""What llmb-install writes for Run:ai is what the cluster reads: one name for one thing on both
sides.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract.spec import Workload
from llmb.core import yamlfile
from llmb.core.yamlfile import Document
from llmb.plan.config_layers import load_config
from llmb_installer.answers.read import read_answers
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.auto import resolve_auto
from llmb_installer.detect.detected import add_variables
from llmb_installer.detect.site import make_site
from llmb_installer.planning.config import compose_own_part, plan_config, write_config
from llmb_testing.runai import ControlPlane

Site = Any  # the class is in conftest.py
EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "runai.yaml"
MORE = """\
  cluster: cluster-one
  secrets: {HF_TOKEN: {name: hub, key: token}}
  node_pools: [a, b]
  extended_resources: {rdma/ib: 8}
  annotations: {net: ib0}
  keep_days: 3
  spec: {priorityClass: high, security: {runAsUid: 1000}, imagePullPolicy: null, ports: [{container: 80}]}
"""


def written(text: str, install: Path, workloads: dict[str, Workload]) -> dict[str, Any]:
    """The runai section that the installer writes for these answers."""
    document = yamlfile.parse(text, name="a.yaml")
    answers, _ = resolve_auto(read_answers(document, install=install, workloads=workloads))
    ours = compose_own_part(answers, make_site(answers, answers.gpu_type), workloads, [])
    write_config(install, plan_config({}, {}, ours))
    config, _ = load_config(install, {"XDG_CONFIG_HOME": str(install)}, cluster_types=all_types)
    assert config.section == answers.section
    found: dict[str, Any] = yaml.safe_load((install / "cluster_config.yaml").read_text())["runai"]
    return found


@pytest.mark.parametrize("more", ["", MORE])
def test_every_key_of_the_answers_arrives(
    more: str, tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    text = EXAMPLE.read_text() + more
    assert written(text, tmp_path, workloads) == yaml.safe_load(text)["runai"]


def test_the_variables_of_run_ai_s_users_are_enough(
    paper: ControlPlane,
    site_at: Callable[..., Site],
    tmp_path: Path,
    workloads: dict[str, Workload],
) -> None:
    """From the variables alone, without a terminal, to a run in Run:ai."""
    volume = tmp_path / "volume"
    named = {
        "BASE_URL": paper.url,
        "PROJECT_NAME": "benchmarks",
        "APP_ID": "me",
        "PVC_DIR": str(volume),
        "CUSTOM_MOUNT": f"work:{volume}:work-claim",
    }
    document, _ = add_variables(
        Document(name="a.yaml", data={"cluster_type": "runai", "gpu_type": "h100"}), named
    )
    pvc = {"name": "work", "path": str(volume), "claim": "work-claim"}
    section = {"base_url": paper.url, "project": "benchmarks", "app_id": "me", "pvc": pvc}
    site = site_at(paper)
    (site.install / "cluster_config.yaml").unlink()
    assert document.data["install"] == str(site.install)
    assert written(yaml.safe_dump(document.data), site.install, workloads) == section
    site.environ = {"APP_SECRET": "s3cret"}
    done = site.llmb("single", "-w", "nemotron4", "-s", "15b", "--dtype", "bf16", "--scale", "16")
    assert done.returncode == 0, done.stderr
    assert [workload.kind for workload in paper.workloads] == ["distributed"]
