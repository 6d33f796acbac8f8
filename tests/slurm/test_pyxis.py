# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts with a container under the real srun, which a plugin has taught pyxis's options."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.clusters.slurm import known, sbatch_script
from llmb.runs.launch import Wrapper

Site = Any  # the class is in conftest.py
DUMP = "import json, os\nopen('env.' + os.environ['LLMB_RANK'], 'w').write(json.dumps(dict(os.environ)))\n"


@pytest.fixture
def known_options() -> str | None:
    """How many of its options the pyxis knows, None for all."""
    return None


@pytest.fixture
def pyxis_site(kit: Any, site_at: Callable[..., Site], tmp_path: Path, known_options: str | None) -> Iterator[Site]:
    """An install directory for the cluster, whose srun now has the options; the image is an empty file."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no pyxis stand-in here: apt-get install --no-install-recommends gcc libc6-dev")
    plugin = tmp_path / "pyxis_stand_in.so"
    version = [int(part) for part in re.findall(r"\d+", kit.run("sbatch", "--version"))[:3]]
    number = f"0x{version[0]:02x}{version[1]:02x}{version[2]:02x}"
    source = Path(__file__).with_name("pyxis_stand_in.c")
    words = [f"-DVERSION={number}", *([f"-DKNOWN={known_options}"] if known_options else [])]
    subprocess.run([compiler, "-shared", "-fPIC", *words, "-o", plugin, source], check=True)
    plugstack = kit.folder / "etc/plugstack.conf"
    plugstack.write_text(f"required {plugin}\n")
    site = site_at(kit, "in st'all", slurm={"container": "pyxis", "mpi": "pmi2", "gpu": {"gres": 8}})
    image = site.install / "images/nvidia+nemo+25.04.01.sqsh"
    image.parent.mkdir()
    image.touch()
    yield site
    plugstack.write_text("")


def test_each_rank_starts_in_its_image(pyxis_site: Site) -> None:
    site = pyxis_site
    wrapper = Wrapper(name="bind", argv=("bash", "-c", 'export BOUND=$((LLMB_LOCAL_RANK / 2)); exec "$@"', "_"))
    launch = site.launch(
        DUMP, nodes=2, ranks_per_node=3, image="nvcr.io/nvidia/nemo:25.04.01", wrappers=(wrapper,),
        environment={"NCCL_DEBUG": "WARN", "NOTE": "it's $5"}, mounts=("/tmp:/data:ro",), secrets=("HF_TOKEN",),
    )  # fmt: skip
    cluster = site.cluster(environ={"HF_TOKEN": "x"})
    assert cluster.preflight([launch]) == []
    run = site.record(launch)
    run = run.submitted(cluster.submit(run))
    site.ends(run)
    for rank in range(6):
        got = json.loads((run.work / f"env.{rank}").read_text())
        assert got["GOT_IMAGE"] == str(site.install / "images/nvidia+nemo+25.04.01.sqsh")
        assert got["GOT_WORKDIR"] == str(run.work)
        assert "GOT_NO_HOME" in got
        assert got["GOT_MOUNTS"].split(",")[0] == f"{run.directory}:{run.directory}"
        assert got["GOT_MOUNTS"].split(",")[2] == "/tmp:/data:ro"
        assert {"NCCL_DEBUG", "NOTE", "HF_TOKEN", "PYTHONPATH", "MASTER_ADDR"} <= set(got["GOT_ENV"].split(","))
        assert (got["NOTE"], got["BOUND"], got["HF_TOKEN"]) == ("it's $5", str(rank % 3 // 2), "x")


def test_an_image_that_is_not_there_is_missed_before(pyxis_site: Site) -> None:
    launch = pyxis_site.launch("", image="nvcr.io/nvidia/nemo:24.09")
    (fault,) = pyxis_site.cluster().preflight([launch])
    assert fault.message == f"the image {pyxis_site.install}/images/nvidia+nemo+24.09.sqsh is not there"
    assert (fault.hint or "").startswith("llmb-install add ")


@pytest.mark.parametrize("known_options", ["2"])
def test_a_pyxis_that_knows_image_and_mounts_alone(pyxis_site: Site) -> None:
    site, cluster = pyxis_site, pyxis_site.cluster()
    lacks = known.lacking(cluster.client, cluster.config)
    assert lacks == {*sbatch_script.PYXIS_OPTIONS}
    cluster = replace(cluster, lacks=lacks)
    launch = site.launch(DUMP, image="nvcr.io/nvidia/nemo:25.04.01", environment={"NOTE": "it's $5"})
    assert cluster.preflight([launch]) == []
    run = site.record(launch)
    run.script.write_text(cluster.render(launch, run.stamp))
    run = run.submitted(cluster.submit(run))
    site.ends(run)
    got = json.loads((run.work / "env.0").read_text())
    assert (got["NOTE"], "GOT_IMAGE" in got, "GOT_WORKDIR" in got) == ("it's $5", True, False)


def test_an_mpi_plugin_that_cannot_be_loaded_is_missed_before(pyxis_site: Site) -> None:
    """One that is listed may lack its library, as Debian's pmix does on its own."""
    cluster = pyxis_site.cluster()
    launch = pyxis_site.launch("", image="nvcr.io/nvidia/nemo:25.04.01")
    path = pyxis_site.install / "bin"
    path.mkdir()
    (path / "srun").write_text(
        "#!/bin/sh\ncase $* in *--mpi=list*) echo pmi2 ;; *--help*) echo --container-image ;;\n"
        "*) echo \"srun: error: Invalid MPI type 'pmi2', --mpi=list for acceptable types\" >&2; exit 1 ;; esac\n"
    )
    (path / "srun").chmod(0o755)
    environ = {**cluster.client.environ, "PATH": f"{path}:{cluster.client.environ['PATH']}"}
    (fault,) = replace(cluster, client=replace(cluster.client, environ=environ)).preflight([launch])
    assert fault.message == "this Slurm cannot load its MPI plugin 'pmi2'"
