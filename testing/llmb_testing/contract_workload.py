# SPDX-License-Identifier: Apache-2.0
"""The contract tests of a workload: its table, its needs, and every job that its rows describe, on
every cluster.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from llmb import api
from llmb.check.log_trial import sample_faults
from llmb.check.workload_trial import faults_of
from llmb.contract.gpus import CPU
from llmb.contract.job import Job
from llmb.contract.launch import Launch
from llmb.contract.rows import ANY_GPU
from llmb.contract.switches import Switches
from llmb.contract.variables import check_name
from llmb.core import shell, typed
from llmb.errors import Fault, LlmbError, PluginError, author_fault
from llmb.kit.checks import preview_stamp
from llmb.plan.plan import make_plan
from llmb.plan.published_tables import read_published
from llmb.run.prepare import site_of
from llmb_testing import audit
from llmb_testing.contract_support import (
    CANARY,
    PluginTarget,
    elsewhere,
    fail,
    fail_if,
    loaded,
    targets,
    workload_of,
)
from llmb_testing.entries import job_entry

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NOT_HERE = ("machine-too-small",)  # codes of faults of a cluster, not of the workload
_GPUS = (CPU, "h100")  # what `any` is tested with
# as of an install
_SETTINGS = {"torch": "2.13.0", "transformers": "5.23.0", "framework": "nemo", "tokenizer": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCase:
    """A size, a GPU type and a dtype of the workload."""

    size: str
    gpu: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.size}-{self.gpu}-{self.dtype}"


class WorkloadContract:
    """Subclass it with the name of the plugin's package."""

    #: The package that the entry point names.
    plugin: ClassVar[str]
    #: Further clusters to plan for, as the data of cluster_config.yaml by a name.
    clusters: ClassVar[Mapping[str, Mapping[str, object]]] = {}

    @classmethod
    def llmb_cases(cls) -> list[LaunchCase]:
        """Every size × GPU type × dtype. None where the plugin does not load, which is a test of
        its own.
        """
        cases: dict[LaunchCase, None] = {}
        for workload in loaded(cls.plugin).workloads().values():
            for name, size in workload.sizes.items():
                for row in size.rows:
                    gpus = [
                        gpu_type
                        for gpu in row.gpu
                        for gpu_type in (_GPUS if gpu == ANY_GPU else (gpu,))
                    ]
                    cases |= dict.fromkeys(
                        LaunchCase(size=name, gpu=gpu, dtype=dtype)
                        for gpu in gpus
                        for dtype in row.dtype
                    )
        return list(cases)

    def test_the_plugin_loads(self) -> None:
        """The plugin has a workload and no problem."""
        workload_of(self.plugin)

    def test_the_table_is_valid(self) -> None:
        """Every row is a valid configuration with a program, at each scale. Published figures and
        sample are read.
        """
        workload, plugins = workload_of(self.plugin), loaded(self.plugin)
        faults = [*faults_of(workload, plugins), *sample_faults(workload, plugins)]
        try:
            read_published(workload)
        except LlmbError as error:
            faults += getattr(error, "faults", None) or [author_fault(error)]
        fail_if(faults)

    def test_its_names_are_safe(self) -> None:
        """Names are parts of folders, job names and options: letters, digits and . _ + - alone."""
        workload = workload_of(self.plugin)
        names = {
            "key": [workload.key],
            "sizes": [*workload.sizes],
            "dtype": [
                dtype
                for size in workload.sizes.values()
                for row in size.rows
                for dtype in row.dtype
            ],
            "metrics": [metric.name for metric in workload.metrics],
            "parameters": [*workload.parameters],
        }
        hint = "use letters, digits and . _ + -, and begin with a letter or digit"
        fail_if(
            Fault(
                place=str(workload.file or self.plugin),
                message=f"{key}: '{name}' is not safe in a path",
                hint=hint,
            )
            for key, own in names.items()
            for name in dict.fromkeys(own)
            if not _SAFE.fullmatch(name)
        )

    def test_llmb_workload_is_pure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The hook gives equal workloads, and has no effects."""
        workload = workload_of(self.plugin)
        offer = loaded(self.plugin).offers[workload.key]
        hook = getattr(loaded(self.plugin).manager.get_plugin(offer.source), "llmb_workload")  # noqa: B009
        with elsewhere(tmp_path, monkeypatch), audit.recorded() as effects:
            again = hook()
        self._check_pure("llmb_workload", workload, again, effects)

    def test_setup_is_pure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """``llmb_setup`` gives equal needs for equal sites, and has no effects, on every
        cluster.
        """
        workload, plugins = workload_of(self.plugin), loaded(self.plugin)
        for case in {case.gpu: case for case in self.llmb_cases()}.values():
            folder = tmp_path / case.gpu
            folder.mkdir()
            for target, job, _ in self._jobs(case, folder):
                site = replace(site_of(target.config, job), settings=_SETTINGS)
                first = plugins.setup(workload, site)
                with elsewhere(tmp_path, monkeypatch), audit.recorded() as effects:
                    again = plugins.setup(workload, replace(site, settings={**_SETTINGS}))
                self._check_pure(f"llmb_setup on {target.name}", first, again, effects)
                if CANARY in repr(again):
                    self._fail(
                        f"llmb_setup on {target.name}: the needs contain the value of a secret"
                    )

    def test_every_job_launches(
        self, llmb_case: LaunchCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each scale has a launch and a script on some cluster: pure, recordable, without a
        secret.
        """
        refused: dict[int, list[str]] = {}
        launched = set[int]()
        shells: dict[str, str] = {}
        for target, job, workload in self._jobs(llmb_case, tmp_path):
            try:
                launch = loaded(self.plugin).launch(workload, job, site_of(target.config, job))
            except PluginError as error:
                fail([author_fault(error)])
            except LlmbError as error:  # for users: this job does not run there
                refused.setdefault(job.scale, []).append(f"{target.name}: {error.message}")
                continue
            if launch is None:
                refused.setdefault(job.scale, []).append(f"{target.name}: no plugin launches it")
                continue
            launched.add(job.scale)
            with elsewhere(tmp_path, monkeypatch), audit.recorded() as effects:
                again = loaded(self.plugin).launch(workload, job, site_of(target.config, job))
            self._check_pure(f"llmb_launch on {target.name}", launch, again, effects)
            self._check_launch(launch, job, target)
            shells[target.name] = self._script(launch, target)
        for scale, reasons in refused.items():
            if scale not in launched:
                self._fail(f"{llmb_case} at scale {scale} runs on no cluster: {'; '.join(reasons)}")
        for name, script in shells.items():  # of the largest scale
            _check_bash(script, f"{llmb_case} on {name}")

    def _jobs(
        self, case: LaunchCase, folder: Path
    ) -> Iterator[tuple[PluginTarget, Job, api.Workload]]:
        """Return the jobs of a case on each cluster: every scale, and each choice of a parameter at
        the first.
        """
        workload, plugins = workload_of(self.plugin), loaded(self.plugin)
        size, faults = workload.sizes[case.size], list[Fault]()
        for target in targets(folder, case.gpu, plugins, workload.key, self.clusters):
            for strong in (False, True):
                scales = size.scales(case.gpu, case.dtype, strong=strong)
                requests = [
                    job_entry(
                        workload=workload.key,
                        size=case.size,
                        dtypes=(case.dtype,),
                        scales=tuple(counts),
                        parameters=parameters,
                        switches=Switches(strong_scaling=strong or None),
                    )
                    for counts, parameters in [(scales, {}), *_choices(workload, case.size, scales)]
                    if counts
                ]
                plan = make_plan(requests, {workload.key: workload}, target.config)
                faults += [fault for fault in plan.faults if fault.code not in _NOT_HERE]
                yield from ((target, job, workload) for job in plan.jobs)
        fail_if(dict.fromkeys(faults))

    def _check_launch(self, launch: Launch, job: Job, target: PluginTarget) -> None:
        call = f"llmb_launch of {job.experiment_name} on {target.name}"
        text = json.dumps(typed.to_data(launch))
        if typed.read_own(Launch, Path("llmb-run.json"), json.loads(text)) != launch:
            self._fail(
                f"{call}: the launch read from its JSON differs",
                "use the types of the fields, and no objects",
            )
        if CANARY in text:
            self._fail(
                f"{call}: the launch contains the value of a secret",
                "name the variable in Launch.secrets",
            )
        for name in launch.environment:
            try:
                check_name(name)
            except ValueError as error:
                self._fail(f"{call}: environment: {error}", getattr(error, "hint", None))
        if not _SAFE.fullmatch(launch.name) or not _SAFE.fullmatch(job.experiment_name):
            self._fail(f"{call}: '{launch.name}' is not safe in a path", "name=job.experiment_name")

    def _script(self, launch: Launch, target: PluginTarget) -> str:
        """Return the script of the launch. Rendering it twice gives the same text, without a
        secret.
        """
        stamp = preview_stamp(launch, target.config)
        script = target.cluster.render(launch, stamp)
        if script != target.cluster.render(launch, stamp) or CANARY in script or not script.strip():
            self._fail(
                f"{launch.name} on {target.name}: its script differs from one time to the next"
            )
        return script

    def _check_pure(self, call: str, first: object, again: object, effects: list[str]) -> None:
        if first != again:
            hint = (
                "depend only on the arguments: no time, random number, environment or current"
                " folder"
            )
            self._fail(
                f"{call}: equal arguments give different values:\n  {first}\n  {again}", hint
            )
        if effects:
            self._fail(
                f"{call}: {effects[0]}",
                "a hook only returns a value; llmb installs, writes and runs",
            )

    def _fail(self, message: str, hint: str | None = None) -> None:
        fail([Fault(place=self.plugin, message=message, hint=hint)])


def _choices(
    workload: api.Workload, size: str, scales: list[int]
) -> list[tuple[list[int], dict[str, tuple[str, ...]]]]:
    """Return the first scale with each choice of each parameter that is not the default."""
    choices = []
    for name, parameter in workload.parameters_of(size).items():
        alternatives = tuple(choice for choice in parameter.choices if choice != parameter.default)
        if alternatives:
            choices.append((scales[:1], {name: alternatives}))
    return choices


def _check_bash(script: str, name: str) -> None:
    """Fail for a script of bash that bash cannot read. Other languages are not checked."""
    bash = shutil.which("bash")
    if bash is None or not script.startswith("#!") or "bash" not in script.partition("\n")[0]:
        return
    process = shell.run([bash, "-n"], stdin=script)
    if process.code != 0:
        fail([Fault(place=name, message=f"bash cannot read the script: {process.err.strip()}")])
