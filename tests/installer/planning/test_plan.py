# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan: which steps follow from what workloads need, and which of them are shared or
refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.contract.launch import Site
from llmb.contract.needs import HubAsset, Image, Needs, Repo, Venv
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import ClusterConfig, GpuTypeConfig
from llmb.contract.spec import Workload
from llmb.core import typed, yamlfile
from llmb.errors import LlmbError, describe
from llmb.plugins.loader import load_plugins
from llmb_installer.answers.schema import Answers, IndexUrl, Interpreter, PackageVersions, Version
from llmb_installer.cluster_types import all_types
from llmb_installer.detect.site import make_site
from llmb_installer.planning.plan import intend, plan_install
from llmb_installer.step import InstallStep
from llmb_installer.steps import programs
from llmb_installer.venv.venv_step import VenvStep

TORCH = Venv(name="torch", requirements=("torch==1",))


@dataclass(frozen=True)
class StandIn:
    """Plugins whose workloads need what the test says."""

    needs: Mapping[str, Needs | None]

    def workloads(self) -> dict[str, Workload]:
        some = next(iter(load_plugins(builtin_plugins()).workloads().values()))
        return {key: replace(some, key=key) for key in self.needs}

    def setup(self, workload: Workload, site: Site) -> Needs | None:
        return self.needs[workload.key]


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    return Answers(cluster_type="local", install=tmp_path / "install", gpu_type="cpu")


def steps(
    answers: Answers, needs: Mapping[str, Needs | None], gpu_type: str = "cpu"
) -> tuple[InstallStep, ...]:
    """The steps that the needs come to; the one of the programs is always the last."""
    *found, programs = intend(answers, make_site(answers, gpu_type), StandIn(needs))[0].steps
    assert programs.key == "programs of compute nodes"
    return tuple(found)


def venvs(
    answers: Answers, needs: Mapping[str, Needs | None], gpu_type: str = "cpu"
) -> list[VenvStep]:
    return [step for step in steps(answers, needs, gpu_type) if isinstance(step, VenvStep)]


def one(*needs: Venv | Image | HubAsset | Repo) -> Needs:
    return Needs(needs=needs)


def test_equal_needs_are_one_step(answers: Answers) -> None:
    other = Venv(name="other", requirements=("numpy",))
    found = steps(answers, {"a": one(TORCH), "b": one(TORCH, other), "c": one(TORCH)})
    assert [(step.key, step.workloads) for step in found] == [
        ("venv torch", ("a", "b", "c")),
        ("venv other", ("b",)),
    ]


def test_the_shipped_workloads_share_one_environment(answers: Answers) -> None:
    asked = replace(answers, versions=PackageVersions(torch=Version("2.9.1")))
    intent, omitted = intend(asked, make_site(asked, "cpu"), load_plugins(builtin_plugins()))
    step, programs = intent.steps
    assert isinstance(step, VenvStep)
    assert programs.workloads == step.workloads
    assert step.need.requirements == ("torch==2.9.1", "transformers==5.23.0")
    assert {"pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh"} <= set(step.workloads)
    assert omitted == []


def test_the_content_decides_the_digest(answers: Answers, tmp_path: Path) -> None:
    needs = {"a": one(TORCH)}
    changed = [
        steps(answers, {"a": one(replace(TORCH, requirements=("torch==2",)))}),
        steps(answers, {"a": one(replace(TORCH, constraints=("numpy<2",)))}),
        steps(answers, needs, gpu_type="h100"),
        steps(replace(answers, torch_index=IndexUrl("https://host/")), needs),
        steps(replace(answers, python=Interpreter("3.12")), needs),
        steps(replace(answers, install=tmp_path / "elsewhere"), needs),
    ]
    digests = {step.digest for (step,) in [steps(answers, needs), *changed]}
    assert len(digests) == 1 + len(changed)
    assert (
        steps(answers, needs)[0].digest
        == steps(answers, {"a": one(TORCH), "b": one(TORCH)})[0].digest
    )


def test_the_cpu_index_is_for_a_machine_without_a_gpu(answers: Answers) -> None:
    needs = {"a": one(TORCH)}
    assert venvs(answers, needs)[0].torch.cpu_index is not None
    assert venvs(answers, needs, gpu_type="h100")[0].torch.cpu_index is None
    assert venvs(replace(answers, torch_cpu_index=None), needs)[0].torch.cpu_index is None


def test_an_answer_overrides_the_python_of_the_plugin(answers: Answers) -> None:
    needs = {"a": one(replace(TORCH, python="3.12"))}
    assert venvs(answers, needs)[0].python == "3.12"
    assert venvs(replace(answers, python=Interpreter("3.13")), needs)[0].python == "3.13"


@pytest.mark.parametrize(
    ("needs", "code"),
    [
        (None, "setup-missing"),
        (one(Image(reference="host/image:1")), "no-containers"),
        (one(replace(TORCH, requirements=("torch==2",))), "steps-conflict"),
    ],
)
def test_what_cannot_be_installed(
    answers: Answers, needs: Needs | None, code: str, wording: Callable[..., None]
) -> None:
    both = {"a": one(TORCH), "bad": needs}
    with pytest.raises(LlmbError) as refused:
        steps(replace(answers, workloads=("a", "bad")), both)
    assert refused.value.code == code
    intent, omitted = intend(answers, make_site(answers, "cpu"), StandIn(both))
    assert intent.workloads == ("a",)
    assert intent.steps[:-1] == steps(answers, {"a": one(TORCH)})
    wording("llmb-install", omitted[0])


@dataclass(frozen=True)
class ByType(StandIn):
    """Plugins whose workloads have other needs on each GPU type."""

    def setup(self, workload: Workload, site: Site) -> Needs | None:
        return self.needs.get(f"{workload.key} {site.gpu_type}")

    def workloads(self) -> dict[str, Workload]:
        some = next(iter(load_plugins(builtin_plugins()).workloads().values()))
        return {
            key: replace(some, key=key)
            for key in dict.fromkeys(name.split()[0] for name in self.needs)
        }


TWO = {"h100": GpuTypeConfig(), "new": GpuTypeConfig(like="b200")}


def by_type(answers: Answers, needs: Mapping[str, Needs | None]) -> dict[str, tuple[str, ...]]:
    """The steps for a cluster of h100 and b200, and for which workloads each is."""
    both = replace(answers, gpu_type="h100", gpu_types=TWO)
    *found, _ = intend(both, make_site(both, "h100"), ByType(needs))[0].steps
    return {step.key: step.workloads for step in found}


def test_what_any_gpu_type_needs_is_installed(answers: Answers) -> None:
    newer = Venv(name="newer", requirements=("torch==2",))
    found = by_type(
        answers, {"a h100": one(TORCH), "a b200": one(TORCH, newer), "b b200": one(TORCH)}
    )
    assert found == {"venv torch": ("a", "b"), "venv newer": ("a",)}


def test_gpu_types_with_conflicting_steps_are_refused(answers: Answers) -> None:
    other = replace(TORCH, requirements=("torch==2",))
    with pytest.raises(LlmbError) as refused:
        by_type(replace(answers, workloads=("a",)), {"a h100": one(TORCH), "a b200": one(other)})
    assert (refused.value.code, refused.value.key) == ("steps-conflict", "venv torch")


def test_torch_for_cpus_is_not_for_a_cluster_that_has_gpus_as_well(answers: Answers) -> None:
    assert venvs(replace(answers, gpu_types=TWO), {"a": one(TORCH)})[0].torch.cpu_index is None


def test_the_configuration_names_each_of_several_environments_assets_and_repositories(
    answers: Answers,
) -> None:
    nemo, model = (
        Venv(name="nemo", requirements=()),
        HubAsset(repository="team/model", files=("tokenizer.json",)),
    )
    source = Repo(url="https://host/team/code.git", commit="abc4" * 10)
    needs = {"a": one(TORCH), "b": one(nemo, TORCH, model, source)}
    plan = plan_install(intend(answers, make_site(answers, "cpu"), StandIn(needs))[0])
    found = typed.read(
        ClusterConfig, yamlfile.parse(yaml.safe_dump(plan.config.data), name="x")
    ).workloads.config
    folder = answers.install / "venvs"
    assert (found["a"].venv_path, found["a"].venvs) == (folder / "torch", {})
    assert found["b"].venvs == {"torch": folder / "torch", "nemo": folder / "nemo"}
    assert found["b"].assets == {"team/model": model.folder(answers.install)}
    assert found["b"].repos == {
        "https://host/team/code.git": answers.install / "repos/code-abc4abc4abc4"
    }
    assert found["b"].repos[source.url] == source.folder(answers.install)


def test_nothing_is_left_to_install(answers: Answers) -> None:
    with pytest.raises(LlmbError) as refused:
        steps(answers, {"a": None})
    assert refused.value.code == "no-workloads"


def test_looking_writes_nothing(answers: Answers) -> None:
    plan = plan_install(intend(answers, make_site(answers, "cpu"), StandIn({"a": one(TORCH)}))[0])
    assert [step.key for step in plan.todo] == ["venv torch", f"programs {programs.NAME}"]
    assert plan.config.changed
    assert not plan.is_empty
    assert not answers.install.exists()


@pytest.mark.parametrize("kind", ["slurm", "local"])
def test_what_needs_containers_is_named_with_the_fix(
    kind: str, answers: Answers, wording: Callable[..., None]
) -> None:
    """Alone and beside a workload that runs in an environment, named in the answers and not."""
    sections = {"slurm": SlurmConfig(container="none")} if kind == "slurm" else {}
    there = replace(
        answers,
        cluster_type=kind,
        gpu_type="h100",
        node_architecture="x86_64",
        kind=all_types()[kind],
        sections=sections,
    )
    image = one(Image(reference="host/team/tool:1"))
    cases: tuple[tuple[Mapping[str, Needs | None], tuple[str, ...] | None, str], ...] = (
        (
            {"pretrain_a": image, "pretrain_b": one(TORCH)},
            ("pretrain_a", "pretrain_b"),
            "no-containers",
        ),
        ({"pretrain_a": image}, None, "no-workloads"),
    )
    for needs, named, code in cases:
        asked = replace(there, workloads=named)
        with pytest.raises(LlmbError) as caught:
            intend(asked, make_site(asked, "h100"), StandIn(needs))
        assert caught.value.code == code
        assert "pretrain_a" in caught.value.message
        assert ("pyxis" in (caught.value.hint or "")) == (kind == "slurm")
        wording("llmb-install", describe(caught.value))
