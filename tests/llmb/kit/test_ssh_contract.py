# SPDX-License-Identifier: Apache-2.0
"""The contract tests of cluster types on examples/cluster-ssh, a plugin of another distribution."""

import importlib
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from llmb import api
from llmb.contract.cluster import Cluster
from llmb.contract.cluster_type import ClusterType
from llmb.contract.schema import ClusterConfig
from llmb.core import yamlfile
from llmb.plan.read_config import read_config
from llmb.plugins.cluster_checks import with_source
from llmb_testing import contract_cluster
from llmb_testing.contract_cluster import ClusterTypeContract

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "cluster-ssh"
# In place of ssh: the words are a machine and a command, which runs here. A real sshd would need a
# user with keys.
CONNECT = """\
#!/bin/bash
[[ ! -e ${0%/*}/silent-$1 ]] || { echo "no route to $1" >&2; exit 255; }
exec bash -c "$2"
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def llmb_ssh(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's package."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in [name for name in sys.modules if name.partition(".")[0] == "llmb_ssh"]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("llmb_ssh")


class TestSsh(ClusterTypeContract):
    """Two machines that are this one; a job has one of them."""

    nodes = 1

    @pytest.fixture
    def cluster_type(self, llmb_ssh: ModuleType) -> ClusterType:
        (kind,) = llmb_ssh.llmb_clusters()
        return with_source(kind, "llmb-ssh:ssh")

    @pytest.fixture
    def cluster_config(
        self, cluster_type: ClusterType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> ClusterConfig:
        connect = tmp_path / "connect"
        connect.write_text(CONNECT)
        connect.chmod(0o755)
        (tmp_path / "tmp").mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))  # its locks
        text = f"""
        cluster_type: ssh
        llmb_install: {tmp_path}/install
        gpu_type: cpu
        ssh: {{hosts: [one, two], command: [{connect}]}}
        """
        return read_config(
            yamlfile.parse(text, name="x"), cluster_types=lambda: {"ssh": cluster_type}
        )

    def test_a_silent_machine_keeps_only_its_own_runs_open(
        self, cluster: Cluster, cluster_config: ClusterConfig, tmp_path: Path
    ) -> None:
        """Runs of the other machine end, and are cancelled; and so are those whose files show an
        end.
        """
        runs: dict[str, list[api.RunRecord]] = {"one": [], "two": []}
        while len(runs["one"]) < 2 or len(runs["two"]) < 2:
            run = self.recorded(cluster, cluster_config, self.launch("exit 0"))
            runs[cluster.cluster.host(run.stamp.id)].append(run)  # type: ignore[attr-defined]
        chosen = [run for own in runs.values() for run in own[:2]]
        first, second, other, open_ = [run.submitted(cluster.submit(run)) for run in chosen]
        self.until(cluster, [first, second, other, open_])
        (open_.place / "ended").unlink()
        (tmp_path / "silent-two").touch()
        states = cluster.poll([open_, first, other])
        assert (states[first.id].state, states[other.id].state) == ("COMPLETED", "COMPLETED")
        assert (states[open_.id].state, states[open_.id].is_doubtful) == ("RUNNING", True)
        assert set(cluster.find([open_, first])) == {open_.id, first.id}
        with pytest.raises(api.UnclearError):
            cluster.cancel([open_, first])
        assert (first.place / "ssh-cancelled").exists()


def examples() -> dict[str, str]:
    page = (EXAMPLE.parents[1] / "docs/cluster-types.md").read_text()
    in_page = page.partition("## Test it")[2].partition("```python\n")[2].partition("```")[0]
    in_docstring = textwrap.dedent(
        str(contract_cluster.__doc__).partition("class TestSsh")[2].partition("\nEach ")[0]
    )
    return {"the page": in_page, "the docstring": f"class TestSsh{in_docstring}"}


@pytest.mark.parametrize("where", ["the page", "the docstring"])
def test_the_documented_contract_needs_only_llmb_api(
    where: str, llmb_ssh: ModuleType, tmp_path: Path
) -> None:
    """What a vendor pastes gives a type and its configuration; fixtures are called as functions
    here.
    """
    names: dict[str, Any] = {
        "api": api,
        "llmb_ssh": llmb_ssh,
        "ClusterTypeContract": object,
        "Path": Path,
        "pytest": SimpleNamespace(fixture=lambda function: function),
    }
    exec(examples()[where], names)
    test = names["TestSsh"]()
    kind = test.cluster_type()
    config = test.cluster_config(kind, tmp_path)
    assert (config.of_type, config.section.hosts, test.nodes) == (kind, ("gpu1",), 1)
    assert kind.make(config).identity() == "the machines gpu1"
