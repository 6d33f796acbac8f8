# SPDX-License-Identifier: Apache-2.0
"""Which framework and release a job has: by what the user, the GPU type and the install say."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.contract.job import Job
from llmb.contract.sbatch import SlurmConfig
from llmb.contract.schema import (
    ClusterConfig,
    GpuTypeConfig,
    InstallConfig,
    WorkloadConfig,
    WorkloadsConfig,
)
from llmb.contract.settings import NOTHING, Settings
from llmb.contract.spec import Workload
from llmb.contract.switches import Switches
from llmb.errors import UsageError
from llmb.plan.discover import discover
from llmb.plan.images import image_path
from llmb.plan.plan import Plan, make_plan
from llmb.plan.select import Selection, narrow
from llmb_installer.cluster_types import all_types
from llmb_testing.entries import job_entry

LLAMA, HYBRID = "pretrain_llama3.1", "pretrain_nemotronh"
Workloads = Mapping[str, Workload]


def cluster(gpu: str, framework: str | None = None, **more: Any) -> ClusterConfig:
    install = InstallConfig(framework=framework, bridge_release=more.pop("bridge_release", None))
    return ClusterConfig(
        cluster_type="slurm", gpu_type=gpu, install=install, **more, kind=all_types()["slurm"]
    )


def planned(
    workloads: Workloads,
    config: ClusterConfig,
    overrides: Settings = NOTHING,
    **wanted: Any,
) -> Plan:
    values: dict[str, Any] = {"workload": LLAMA, "size": "70b", "scales": (64,), **wanted}
    return make_plan([job_entry(**values)], workloads, config, overrides=overrides)


def job(workloads: Workloads, config: ClusterConfig, **wanted: Any) -> Job:
    plan = planned(workloads, config, **wanted)
    assert not plan.faults
    return plan.jobs[0]


@pytest.mark.parametrize(
    ("gpu", "installed", "size", "scale", "framework", "release"),
    [
        ("h100", None, "70b", 64, "nemo", None),
        ("h100", "nemo", "70b", 64, "nemo", None),
        ("h100", "both", "70b", 64, "nemo", None),
        ("h100", "bridge", "70b", 64, "bridge", "26.08"),
        ("h100", "bridge", "405b-proxy", 64, "nemo", None),
        ("b200", None, "405b", 128, "nemo", None),
        ("b200", None, "70b", 64, "bridge", "26.08"),
        ("b300", None, "405b", 128, "bridge", "26.08"),
        ("gb300", "nemo", "8b", 8, "bridge", "26.08"),
    ],
)
def test_the_default_follows_the_gpu_type_and_the_install(
    gpu: str,
    installed: str | None,
    size: str,
    scale: int,
    framework: str,
    release: str | None,
    workloads: Workloads,
) -> None:
    found = job(workloads, cluster(gpu, installed), size=size, scales=(scale,))
    assert (found.framework, found.release) == (framework, release)


def test_a_bridge_job_has_its_row_its_image_and_its_name(workloads: Workloads) -> None:
    """The row of docs/performance-summary-archive.md: 70b, GB300 x 64, FP8, release 26.02.01."""
    found = job(workloads, cluster("gb300"), release="26.02.01", dtypes=("fp8",))
    training = found.trained
    assert (training.tp, training.pp, training.cp, training.vp, training.mbs, training.gbs) == (
        1,
        1,
        1,
        None,
        2,
        256,
    )
    assert found.dtype == "fp8_cs"
    assert found.image == "nvcr.io/nvidia/nemo:26.02.01"
    assert found.experiment_name.endswith(
        "_fp8_cs_gpus64_tp1_pp1_cp1_vpNone_mbs2_gbs256_bridge26.02.01"
    )


def test_the_word_fp8_selects_its_meaning_on_each_count(workloads: Workloads) -> None:
    config = cluster("b200", "bridge", workloads=WorkloadsConfig(installed=(LLAMA,)))
    selection = Selection(workloads=("llama3.1_70b",), dtypes=("fp8",), max_scale=256)
    entries, skipped = discover(workloads, config, selection, "b200")
    counts = {entry.settings.scale: entry.settings.dtype for entry in entries}
    assert counts == {64: "fp8_cs", 128: "fp8_mx", 256: "fp8_mx"}
    assert len(entries) == len(counts)
    assert not skipped
    jobs = make_plan(entries, workloads, config).jobs
    selected, _ = narrow(jobs, Selection(dtypes=("fp8",)), workloads)
    assert len(selected) == len(jobs) == len(counts)


def test_the_release_of_the_install_is_the_default(workloads: Workloads) -> None:
    config = cluster("h100", "bridge", bridge_release="26.02.01")
    assert job(workloads, config).release == "26.02.01"
    assert job(workloads, config, release="26.08").release == "26.08"


def with_images(folder: Path, *tags: str, **config: Any) -> ClusterConfig:
    """A Slurm cluster that has NVIDIA's images of these releases."""
    images = folder / "images"
    images.mkdir(parents=True)
    for tag in tags:
        (images / f"nvidia+nemo+{tag}.sqsh").touch()
    sections = {"slurm": SlurmConfig()}
    return replace(cluster("h100", sections=sections, **config), llmb_install=folder)


@pytest.mark.parametrize(
    ("tags", "framework", "release"),
    [
        (["25.04.01"], "nemo", None),
        (["26.08"], "bridge", "26.08"),
        (["26.02.01"], "bridge", "26.02.01"),
        (["26.02.01", "26.08"], "bridge", "26.08"),
        (["26.06.01"], "bridge", "26.06.01"),
        (["26.04.01", "26.06.01"], "bridge", "26.06.01"),
        (["26.06"], "bridge", "26.08"),  # without rows of its own
        (["25.04.01", "26.08"], "nemo", None),
        ([], "nemo", None),
    ],
)
def test_the_default_follows_the_images(
    tags: list[str], framework: str, release: str | None, workloads: Workloads, tmp_path: Path
) -> None:
    found = job(workloads, with_images(tmp_path, *tags))
    assert (found.framework, found.release) == (framework, release)


def test_the_recorded_choice_comes_before_the_images(workloads: Workloads, tmp_path: Path) -> None:
    config = with_images(tmp_path, "26.08", framework="nemo")
    assert job(workloads, config).framework == "nemo"
    images = with_images(tmp_path / "other", "26.08", bridge_release="26.02.01")
    assert job(workloads, images).release == "26.02.01"


@pytest.mark.parametrize(
    ("venvs", "framework"),
    [
        ({"nemo": "/x/venvs/nemo"}, "nemo"),
        ({"bridge-0.6.0": "/x/venvs/bridge-0.6.0"}, "bridge"),
        ({"nemo": "/x/venvs/nemo", "bridge-0.6.0": "/x/venvs/bridge-0.6.0"}, "nemo"),
    ],
)
def test_the_default_follows_the_environments(
    venvs: dict[str, str], framework: str, workloads: Workloads
) -> None:
    entry = WorkloadConfig(venvs={name: Path(path) for name, path in venvs.items()})
    slurm = {"slurm": SlurmConfig(container="none")}
    config = cluster("h100", sections=slurm, workloads=WorkloadsConfig(config={LLAMA: entry}))
    assert job(workloads, config).framework == framework


@pytest.mark.parametrize(
    ("tags", "wanted", "noted"),
    [
        ([], {}, True),
        (["25.04.01", "26.08"], {}, True),
        (["25.04.01"], {}, False),
        (["26.08"], {}, False),
        ([], {"framework": "nemo"}, False),
        ([], {"framework": "bridge"}, False),
        ([], {"workload": "pretrain_nemotron4", "size": "15b"}, False),
    ],
)
def test_a_note_names_the_other_framework_where_nothing_chose(
    tags: list[str], wanted: dict[str, Any], noted: bool, workloads: Workloads, tmp_path: Path
) -> None:
    plan = planned(workloads, with_images(tmp_path, *tags), **wanted)
    assert [("--framework bridge" in note, "26.08" in note) for note in plan.notes] == (
        [(True, True)] if noted else []
    )


def test_options_override_the_list(workloads: Workloads) -> None:
    plan = planned(
        workloads,
        cluster("h100"),
        Settings(framework="bridge", release="26.02.01"),
        framework="nemo",
    )
    assert [(one.framework, one.release) for one in plan.jobs] == [("bridge", "26.02.01")]


def test_nemotronh_has_the_vocabulary_of_nvidias_tokenizer(workloads: Workloads) -> None:
    """scripts/performance sets a null tokenizer with 32000 tokens; NeMo's run had 131072."""
    ours = job(workloads, cluster("h100"), workload=HYBRID, size="56b")
    theirs = job(workloads, cluster("h100"), workload=HYBRID, size="56b", framework="bridge")
    assert (ours.trained.model.vocab, theirs.trained.model.vocab) == (131072, 32000)


@pytest.mark.parametrize(
    ("gpu", "wanted", "fault"),
    [
        (
            "h100",
            {"framework": "bridge", "dtypes": ("nvfp4",)},
            ("dtype-unknown", "dtype", "nvfp4"),
        ),
        (
            "h100",
            {"framework": "bridge", "size": "405b-proxy"},
            ("framework-unsupported", "framework", "bridge"),
        ),
        ("h100", {"release": "26.2"}, ("release-unknown", "release", "26.2")),
        (
            "h100",
            {"framework": "nemo", "release": "26.08"},
            ("release-without-bridge", "release", "26.08"),
        ),
        ("h200", {"framework": "bridge"}, ("gpu-type-unsupported", "gpu_type", "h200")),
        ("gb300", {"framework": "nemo"}, ("gpu-type-unsupported", "gpu_type", "gb300")),
        (
            "h100",
            {"dotted": {"optimizer.lr": (1e-4,)}},
            ("dotted-without-bridge", "optimizer.lr", "optimizer.lr"),
        ),
        ("h100", {"framework": "bridge", "scales": (8,)}, ("not-divisible", "scale tp pp cp", 32)),
    ],
)
def test_what_nvidia_does_not_have_is_refused(
    gpu: str,
    wanted: dict[str, Any],
    fault: tuple[str, str, object],
    workloads: Workloads,
    request: Any,
) -> None:
    plan = planned(workloads, cluster(gpu), **wanted)
    assert [(one.code, one.key, one.value) for one in plan.faults] == [fault]


# README and metadata.yaml of NVIDIA's exemplar-performance v26.08.00: size, GPU type, dtype, the
# GPU counts from the first to the last, (tp, pp, cp, vp, micro batch), and samples for each GPU.
# Megatron-Bridge has a function for few of these counts.
DOCUMENTED: Sequence[tuple[str, str, str, int, int, tuple[int, int, int, int | None, int], int]] = [
    ("8b", "gb300", "fp8_cs", 8, 128, (1, 1, 1, None, 4), 16),
    ("8b", "b300", "nvfp4", 8, 128, (1, 1, 1, None, 4), 16),
    ("8b", "gb200", "fp8_cs", 8, 128, (1, 1, 1, None, 2), 16),
    ("8b", "b200", "nvfp4", 8, 128, (1, 1, 1, None, 4), 16),
    ("8b", "h100", "bf16", 8, 128, (1, 1, 2, None, 1), 16),
    ("8b", "h100", "fp8_cs", 8, 128, (1, 1, 1, None, 1), 16),
    ("70b", "gb300", "fp8_cs", 64, 512, (1, 1, 1, None, 2), 4),
    ("70b", "b300", "nvfp4", 64, 512, (1, 4, 1, 5, 1), 4),
    ("70b", "b200", "nvfp4", 64, 1024, (2, 4, 1, 5, 1), 4),
    ("70b", "h100", "bf16", 64, 1024, (4, 4, 2, 5, 1), 4),
    ("405b", "gb300", "nvfp4", 256, 512, (4, 8, 1, 4, 1), 6),
    ("405b", "gb200", "nvfp4", 256, 512, (4, 16, 1, 8, 1), 6),
    ("56b", "gb300", "fp8_cs", 8, 512, (2, 1, 1, None, 1), 3),
    ("56b", "b300", "fp8_cs", 8, 512, (2, 1, 1, None, 1), 3),
    ("56b", "h100", "fp8_cs", 32, 512, (8, 1, 1, None, 1), 3),
]


@pytest.mark.parametrize(("size", "gpu", "dtype", "first", "last", "layout", "factor"), DOCUMENTED)
def test_gpu_counts_that_nvidia_documents_need_no_force(
    size: str,
    gpu: str,
    dtype: str,
    first: int,
    last: int,
    layout: tuple[int, ...],
    factor: int,
    workloads: Workloads,
) -> None:
    counts = [first << power for power in range(10) if first << power <= last]
    key = HYBRID if size == "56b" else LLAMA
    plan = planned(
        workloads,
        cluster(gpu),
        workload=key,
        size=size,
        framework="bridge",
        dtypes=(dtype,),
        scales=tuple(counts),
    )
    assert not plan.faults
    found = [(one.scale, one.trained.gbs) for one in plan.jobs]
    assert found == [(count, factor * count) for count in counts]
    for one in plan.jobs:
        trained = one.trained
        assert (trained.tp, trained.pp, trained.cp, trained.vp, trained.mbs) == layout


def test_a_gpu_count_without_nvidias_own_function_has_a_warning(workloads: Workloads) -> None:
    """NVIDIA's functions for Llama 3 8B on H100 are for 8 and 64 GPUs."""
    for scale in (16, 72, 128):
        plan = planned(
            workloads,
            cluster("h100"),
            size="8b",
            framework="bridge",
            dtypes=("bf16",),
            scales=(scale,),
        )
        assert len(plan.warnings) == 1
    plan = planned(
        workloads, cluster("h100"), size="8b", framework="bridge", dtypes=("bf16",), scales=(8, 64)
    )
    assert not plan.warnings


def test_a_refusal_names_what_there_is(workloads: Workloads) -> None:
    def hint(gpu: str, **wanted: Any) -> str:
        return str(planned(workloads, cluster(gpu), **wanted).faults[0].hint)

    assert "bf16" in hint("h100", framework="bridge", dtypes=("nvfp4",))
    assert "--framework bridge" in hint("b200", size="405b", scales=(128,), dtypes=("nvfp4",))
    assert "26.02.01" in hint("h100", release="26.2")
    assert "like: h100" in hint("h200", framework="bridge")


def test_like_uses_another_types_rows_and_says_so(workloads: Workloads) -> None:
    """No release of Megatron-Bridge has a row for H200."""
    config = cluster("h200", gpu_types={"h200": GpuTypeConfig(like="h100")})
    plan = planned(workloads, config, framework="bridge")
    assert [(one.gpu_type, one.rows_of) for one in plan.jobs] == [("h200", "h100")]
    assert len(plan.warnings) == 1
    assert job(workloads, config).rows_of is None  # NeMo


# docs/releases/software-versions.md of Megatron-Bridge: 25.04.01 has NeMo alone, 26.02.01
# Megatron-Bridge 0.3.1, and no image from 26.04 on has NeMo.
OLD, BRIDGE_IMAGE, LATE = (
    f"nvcr.io/nvidia/nemo:{tag}" for tag in ("25.04.01", "26.02.01", "26.06")
)


@pytest.mark.parametrize(
    "image",
    [BRIDGE_IMAGE, "nvcr.io#nvidia/nemo:26.02.01", "nemo:26.02.01", "/x/nvidia+nemo+26.02.01.sqsh"],
)
@pytest.mark.parametrize("framework", ["bridge", None])
def test_the_image_of_a_release_selects_it(
    image: str, framework: str | None, workloads: Workloads
) -> None:
    """In 26.02.01 the 405b on 128 B200 has fp8_cs; NeMo's rows have not."""
    given = Switches(image=image)
    found = job(
        workloads,
        cluster("b200", sections={"slurm": SlurmConfig()}),
        size="405b",
        scales=(128,),
        dtypes=("fp8_cs",),
        framework=framework,
        switches=given,
    )
    assert (found.framework, found.release, found.image) == ("bridge", "26.02.01", image)


@pytest.mark.parametrize(
    ("wanted", "image", "code"),
    [
        ({"framework": "bridge"}, OLD, "image-of-other-release"),
        ({"framework": "bridge"}, LATE, "image-of-other-release"),
        ({"release": "26.08"}, BRIDGE_IMAGE, "image-of-other-release"),
        ({"framework": "nemo"}, BRIDGE_IMAGE, "image-of-other-framework"),
        ({"framework": "nemo"}, LATE, "image-of-other-framework"),
        ({"workload": "pretrain_nemotron4", "size": "15b"}, LATE, "image-of-other-framework"),
        ({"size": "405b-proxy", "scales": (32,)}, BRIDGE_IMAGE, "image-of-other-framework"),
    ],
)
def test_an_image_that_is_known_to_be_wrong_is_refused(
    wanted: dict[str, Any], image: str, code: str, workloads: Workloads
) -> None:
    plan = planned(
        workloads,
        cluster("h100", sections={"slurm": SlurmConfig()}),
        switches=Switches(image=image),
        **wanted,
    )
    assert [(one.code, one.key, one.value) for one in plan.faults] == [(code, "image", image)]
    overrides = Settings(image=image)
    plan = planned(
        workloads, cluster("h100", sections={"slurm": SlurmConfig()}), overrides, **wanted
    )
    assert [one.code for one in plan.faults] == [code]


def recorded(folder: Path, image: str, version: str) -> ClusterConfig:
    """A cluster whose ``image`` has a record of its Megatron-Bridge."""
    config = with_images(folder)
    record = image_path(image, config).with_name(f"{image_path(image, config).name}.json")
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps({"contents": {"megatron-bridge": version}}))
    return config


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.6.0", "26.08"), ("0.6.1+51885cf", "26.08"), ("0.3.9", "26.02.01")],
)
def test_the_library_in_an_image_of_your_own_selects_the_release(
    version: str, release: str, workloads: Workloads, tmp_path: Path
) -> None:
    image = str(tmp_path / "mine.sqsh")
    config = recorded(tmp_path, image, version)
    found = job(workloads, config, switches=Switches(image=image))
    assert (found.framework, found.release, found.image) == ("bridge", release, image)


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ("0.2.0", "megatron-bridge 0.6.0, 0.5.1, 0.4.2, 0.3.1"),
        ("0.5.2", "--release 26.06.01 --image "),
        ("0.3.1", "--release 26.02.01 --image "),
    ],
)
def test_an_image_with_another_library_than_its_release_is_refused_when_planned(
    version: str, hint: str, workloads: Workloads, tmp_path: Path
) -> None:
    image = "nvcr.io/nvidia/nemo:26.08"
    config = recorded(tmp_path, image, version)
    plan = planned(workloads, config, framework="bridge")
    (fault,) = plan.faults
    assert (fault.code, fault.key, fault.value) == ("image-of-other-library", "image", image)
    assert version in fault.message
    assert hint in str(fault.hint)
    pods = replace(config, cluster_type="runai", kind=all_types()["runai"])
    assert not planned(workloads, pods, framework="bridge").faults


@pytest.mark.parametrize("framework", ["nemo", "bridge"])
@pytest.mark.parametrize(
    "image", ["my/nemo:25.04.01", "registry.site:5000/team/bridge:1", "/images/mine.sqsh"]
)
def test_an_image_of_your_own_is_yours(framework: str, image: str, workloads: Workloads) -> None:
    config = cluster("h100", sections={"slurm": SlurmConfig()})
    assert (
        job(workloads, config, framework=framework, switches=Switches(image=image)).image == image
    )


def found_in(
    workloads: Workloads, gpu: str, installed: str | None = None, **selected: Any
) -> set[tuple[str, str]]:
    """The frameworks that discovery finds by workload."""
    requests, _ = discover(
        workloads, cluster(gpu, installed), Selection(max_scale=128, **selected), gpu
    )
    return {(one.settings.workload, one.settings.framework) for one in requests}


def test_discovery_has_one_framework_for_a_workload(workloads: Workloads) -> None:
    assert found_in(workloads, "gb300") == {(LLAMA, "bridge"), (HYBRID, "bridge")}
    assert {framework for _, framework in found_in(workloads, "b200")} == {"nemo"}
    assert found_in(workloads, "h100", framework="bridge") == {
        (LLAMA, "bridge"),
        (HYBRID, "bridge"),
    }
    assert (LLAMA, "bridge") in found_in(workloads, "h100", "bridge")


def test_discovery_of_fp8_is_that_with_current_scaling(workloads: Workloads) -> None:
    requests, _ = discover(
        workloads, cluster("gb300"), Selection(max_scale=64, dtypes=("fp8",)), "gb300"
    )
    assert {one.dtypes for one in requests} == {("fp8_cs",)}


def test_discovery_without_such_a_release(workloads: Workloads) -> None:
    with pytest.raises(UsageError) as caught:
        discover(workloads, cluster("h100"), Selection(max_scale=64, release="25.09"), "h100")
    assert caught.value.code == "nothing-discovered"


@pytest.mark.parametrize("framework", ["bridge", None])
def test_discovery_is_in_the_release_of_the_image(
    framework: str | None, workloads: Workloads
) -> None:
    for image, release in (
        (BRIDGE_IMAGE, "26.02.01"),
        ("nvcr.io/nvidia/nemo:26.04.01", "26.04.01"),
    ):
        requests, _ = discover(
            workloads,
            cluster("h100", sections={"slurm": SlurmConfig()}),
            Selection(max_scale=64, workloads=("llama3.1_70b",), framework=framework, image=image),
            "h100",
        )
        found = {(each.settings.framework, each.settings.release) for each in requests}
        assert found == {("bridge", release)}
    for other in (OLD, "/x/mine.sqsh"):  # NeMo's, and one that nobody knows
        selection = Selection(max_scale=64, workloads=("llama3.1_70b",), image=other)
        requests, _ = discover(
            workloads, cluster("h100", sections={"slurm": SlurmConfig()}), selection, "h100"
        )
        assert {each.settings.framework for each in requests} == {"nemo"}
