# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts with a container under the real srun, with a plugin that knows the options of
pyxis.
"""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm import container, slurm_checks
from llmb.contract.launch import Wrapper
from llmb.errors import PreflightError, describe

Site = Any  # the class is in conftest.py
DUMP = (
    "import json, os\nopen('env.' + os.environ['LLMB_RANK'],"
    " 'w').write(json.dumps(dict(os.environ)))\n"
)


@pytest.fixture
def known_options() -> str | None:
    """How many options this pyxis knows; None for all."""
    return None


@pytest.fixture
def pyxis_site(
    kit: Any,
    site_at: Callable[..., Site],
    pyxis_mock: Callable[..., None],
    smallest_image: bytes,
    known_options: str | None,
) -> Site:
    """An install directory for the cluster, whose srun has the options. The image is only a
    superblock.
    """
    pyxis_mock(kit, known_options)
    site = site_at(
        kit, "in st'all", slurm={"container": "pyxis", "mpi": "pmi2", "gpu": {"gres": 8}}
    )
    image = site.install / "images/nvidia+nemo+25.04.01.sqsh"
    image.parent.mkdir()
    image.write_bytes(smallest_image)
    return site


def test_each_rank_starts_in_its_image(pyxis_site: Site) -> None:
    site = pyxis_site
    wrapper = Wrapper(
        name="bind", argv=("bash", "-c", 'export BOUND=$((LLMB_LOCAL_RANK / 2)); exec "$@"', "_")
    )
    launch = site.launch(
        DUMP,
        nodes=2,
        ranks_per_node=3,
        image="nvcr.io/nvidia/nemo:25.04.01",
        wrappers=(wrapper,),
        environment={"NCCL_DEBUG": "WARN", "NOTE": "it's $5"},
        mounts=("/tmp:/data:ro",),
        secrets=("HF_TOKEN",),
    )
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
        programs, more = got["GOT_MOUNTS"].split(",")[1:]
        assert (programs.endswith(":ro"), more) == (True, "/tmp:/data:ro")
        assert {"NCCL_DEBUG", "NOTE", "HF_TOKEN", "MASTER_ADDR"} <= set(got["GOT_ENV"].split(","))
        assert got["PYTHONPATH"] == f"{programs.split(':')[0]}:/image/python"
        assert (got["OMP_NUM_THREADS"], "GOT_WRITABLE" in got) == (str(max(1, _cpus() // 3)), False)
        assert got["TRITON_CACHE_DIR"].startswith(f"/tmp/llmb-{run.scheduler_id}.")
        assert (got["NOTE"], got["BOUND"], got["HF_TOKEN"]) == ("it's $5", str(rank % 3 // 2), "x")
    site.comes_to_rest()
    assert not list(Path("/tmp").glob(f"llmb-{run.scheduler_id}.*"))


LIST = """\
pretrain_nemotron4_tiny:
('bf16', 1, 1)
pretrain_llama3.1_tiny:
('fp32', 2, 1)
nemotron-h_tiny:
('fp32', 1, 1)
"""


def test_a_list_of_tiny_jobs_in_an_image_becomes_results(
    pyxis_site: Site, torchless_venv: Path, tmp_path: Path
) -> None:
    """No container is started here: a Python on PATH replaces the image's."""
    site = pyxis_site
    (tmp_path / "path").mkdir()
    (tmp_path / "path/python3").symlink_to(torchless_venv / "bin/python")
    (site.install / "images/torch+1.sqsh").write_bytes(
        (site.install / "images/nvidia+nemo+25.04.01.sqsh").read_bytes()
    )
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(LIST)
    path = f"{tmp_path}/path:{site.cluster().client.environ['PATH']}"
    words = ("--image", "own.example/torch:1", "--mount", "/tmp:/data:ro", "--set", "max_steps=4")
    done = site.llmb("submit-all", jobs, *words, "--env", "OMP_NUM_THREADS=1", PATH=path)
    assert done.returncode == 0, done.stderr
    site.comes_to_rest(900)
    site.llmb("jobs", "wait")
    results = json.loads(site.llmb("results", "--format", "json").stdout)["results"]
    assert [(result["status"], result["steps"]) for result in results] == [("Success", 4)] * 3, (
        results
    )
    rows = json.loads(site.llmb("jobs", "--format", "json").stdout)
    assert len(rows) == 3
    for row in rows:  # jobs of other tests run at the same time
        caches = list(Path("/tmp").glob(f"llmb-{row['scheduler_id']}.*"))
        assert not caches, "each job removes its caches"


def _cpus() -> int:
    return int(subprocess.run(["nproc"], capture_output=True, check=True, text=True).stdout)


def test_a_missing_image_is_reported_before_submission(
    pyxis_site: Site, wording: Callable[..., None]
) -> None:
    launch = pyxis_site.launch("", image="nvcr.io/nvidia/nemo:24.09")
    wording("single", describe(PreflightError(pyxis_site.cluster().preflight([launch]))))


@pytest.mark.parametrize("known_options", ["2"])
def test_a_pyxis_that_knows_only_image_and_mounts(pyxis_site: Site) -> None:
    site, cluster = pyxis_site, pyxis_site.cluster()
    lacks = slurm_checks.lacking(cluster.client, cluster.config)
    assert lacks == {*container.PYXIS_OPTIONS}
    cluster = replace(cluster, lacks=lacks)
    launch = site.launch(
        DUMP, image="nvcr.io/nvidia/nemo:25.04.01", environment={"NOTE": "it's $5"}
    )
    assert cluster.preflight([launch]) == []
    run = site.record(launch)
    run.script.write_text(cluster.render(launch, run.stamp))
    run = run.submitted(cluster.submit(run))
    site.ends(run)
    got = json.loads((run.work / "env.0").read_text())
    assert (got["NOTE"], "GOT_IMAGE" in got, "GOT_WORKDIR" in got) == ("it's $5", True, False)


def test_an_mpi_plugin_that_cannot_be_loaded_is_reported_before_submission(
    pyxis_site: Site, wording: Callable[..., None]
) -> None:
    """A listed plugin may lack its library, as Debian's pmix does."""
    cluster = pyxis_site.cluster()
    launch = pyxis_site.launch("", image="nvcr.io/nvidia/nemo:25.04.01")
    path = pyxis_site.install / "bin"
    path.mkdir()
    (path / "srun").write_text(
        "#!/bin/sh\ncase $* in *--mpi=list*) echo pmi2 ;; *--help*) echo --container-image ;;\n*)"
        " echo \"srun: error: Invalid MPI type 'pmi2', --mpi=list for acceptable types\" >&2; exit"
        " 1 ;; esac\n"
    )
    (path / "srun").chmod(0o755)
    environ = {**cluster.client.environ, "PATH": f"{path}:{cluster.client.environ['PATH']}"}
    faults = replace(cluster, client=replace(cluster.client, environ=environ)).preflight([launch])
    wording("single", describe(PreflightError(faults)))
