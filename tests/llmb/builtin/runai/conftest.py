# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a control plane on loopback, and install directories on its volume."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmb.contract import record
from llmb.contract.cluster import Pace
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.contract.schema import ClusterConfig
from llmb.core import files
from llmb.core.process import ProcessId
from llmb.kit.cluster_kit import programs_folder
from llmb.plan.config_layers import load_config
from llmb.run import store
from llmb_installer.cluster_types import all_types
from llmb_runai.rest import RestClient
from llmb_runai.runai_cluster import RunaiCluster
from llmb_runai.token import Credentials
from llmb_runai.workloads import Api
from llmb_testing.job import SMALLEST_JOB
from llmb_testing.runai import ControlPlane, serve

NAMES = ("pretrain_nemotron4", "pretrain_llama3.1", "pretrain_nemotronh")
SIGN_IN = {"APP_ID": "me", "APP_SECRET": "s3cret"}
QUICK = Pace(parallel=4, poll=0.0, slowest_poll=0.0)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane whose pods run."""
    with serve(ControlPlane(tmp_path / "pods")) as started:
        yield started


@pytest.fixture
def paper(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane without pods, where workloads stay pending unless a test changes that."""
    with serve(ControlPlane(tmp_path / "pods", has_pods=False)) as started:
        started.phases = ("Pending",)
        yield started


@pytest.fixture(scope="session")
def models() -> Any:
    """The models of the official client, generated from the API's document."""
    return importlib.import_module("runai.models")


@dataclass(kw_only=True)
class Site:
    """An install directory on the volume of a control plane. Tests use llmb-run or the cluster
    type's methods.
    """

    plane: ControlPlane
    install: Path
    command: Callable[..., Any]
    environ: Mapping[str, str] = field(default_factory=lambda: SIGN_IN)

    @property
    def config(self) -> ClusterConfig:
        return load_config(self.install, {}, cluster_types=all_types)[0]

    def llmb(self, *arguments: object, **variables: str) -> Any:
        """Run the real llmb-run here."""
        return self.command(*arguments, "--install", self.install, **{**self.environ, **variables})

    def cluster(self, **environ: str) -> RunaiCluster:
        """The cluster as llmb-run creates it, with shorter pauses."""
        return RunaiCluster(
            config=self.config,
            environ={**self.environ, **environ},
            programs=programs_folder(self.config),
            pace=QUICK,
            first_pause=0.001,
        )

    def api(self) -> Api:
        """The API of the control plane, after sign-in."""
        runai = self.config.section
        return Api(client=client_of(self.plane), runai=runai)

    def launch(self, program: str = "pass", /, **changes: Any) -> Launch:
        """A launch whose ranks each run the Python text ``program``."""
        script = self.install / f"program{len(list(self.install.glob('program*')))}.py"
        script.write_text(program)
        made = Launch(
            name="job",
            nodes=1,
            ranks_per_node=1,
            time_limit=900,
            program=Program(script=str(script)),
            gpu_type="h100",
            image="registry.example/torch:1",
        )
        return replace(made, **changes)

    def record(self, launch: Launch) -> RunRecord:
        """A recorded run that is not submitted yet."""
        now = time.time()
        stamp = store.new_directory(self.config.experiments("w"), launch.name, int(now))
        run = RunRecord(
            id=stamp.id,
            created=now,
            llmb_version="0",
            cluster_type="runai",
            directory=stamp.path,
            job=SMALLEST_JOB,
            launch=launch,
            script_name=f"launch_{launch.name}",
            submitter=ProcessId.current(),
        )
        record.save(run)
        files.write_text(run.script, self.cluster().render(launch, run.stamp))
        return run

    def submit(self, program: str = "pass", /, **changes: Any) -> RunRecord:
        """Record and submit a run of ``program``."""
        run = self.record(self.launch(program, **changes))
        run = run.submitted(self.cluster().submit(run))
        record.save(run)
        return run


def client_of(plane: ControlPlane) -> RestClient:
    """A client of the API that never waits for long."""
    return RestClient(plane.url, Credentials(id="me", secret="s3cret"), first_pause=0.001)


@pytest.fixture
def site_at(tmp_path: Path, llmb_run: Callable[..., Any]) -> Callable[..., Site]:
    """Creates install directories on the volume; keywords are more keys of the configuration."""

    def make(
        plane: ControlPlane,
        *,
        venv: Path | None = None,
        runai: Mapping[str, Any] | None = None,
        **keys: Any,
    ) -> Site:
        volume = tmp_path / "volume"
        install = volume / "llmb"
        install.mkdir(parents=True)
        own = {
            "base_url": plane.url,
            "project": "benchmarks",
            "pvc": {"name": "work", "path": str(volume), "claim": "work-claim"},
            **(runai or {}),
        }
        venvs = {"venvs": {"torch": str(venv)}} if venv is not None else {}
        config = {
            "schema_version": 2,
            "cluster_type": "runai",
            "cluster_name": "kit",
            "gpu_type": "h100",
            "gpu_types": {"h100": {"gpus_per_node": 1}},
            "runai": own,
            "workloads": {"installed": [*NAMES], "config": {name: dict(venvs) for name in NAMES}},
            **keys,
        }
        (install / "cluster_config.yaml").write_text(
            yaml.safe_dump(config, sort_keys=False), "utf-8"
        )
        return Site(plane=plane, install=install, command=llmb_run)

    return make


@pytest.fixture
def site(plane: ControlPlane, site_at: Callable[..., Site]) -> Site:
    """An install directory on the volume of the control plane whose pods run."""
    return site_at(plane)


@pytest.fixture
def paper_site(paper: ControlPlane, site_at: Callable[..., Site]) -> Site:
    """An install directory on the volume of the control plane without pods."""
    return site_at(paper)


@pytest.fixture
def torch_venv(torch_install: Path, site_at: Callable[..., Site], tmp_path: Path) -> Path:
    """The torch environment of the test suite, under a path on the volume."""
    installed = yaml.safe_load((torch_install / "cluster_config.yaml").read_text())["workloads"]
    venv = Path(next(iter(installed["config"].values()))["venv_path"])
    link = tmp_path / "volume" / "torch"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(venv)
    return link
