# SPDX-License-Identifier: Apache-2.0
"""The contract tests of cluster types on examples/cluster-ssh, a plugin of another distribution."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from llmb.config import ClusterConfig
from llmb.config.cluster_type import ClusterType
from llmb.config.reading import read_config
from llmb.plugins.cluster_checks import with_source
from llmb.text import yamlfile
from llmb_testing.contract_cluster import ClusterTypeContract

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "cluster-ssh"
# In place of ssh: the words are a machine and a command, which runs here. A real sshd would need a user with keys.
CONNECT = """\
#!/bin/bash
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
    """Two machines that are this one."""

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
        return read_config(yamlfile.parse(text, name="x"), cluster_types=lambda: {"ssh": cluster_type})
