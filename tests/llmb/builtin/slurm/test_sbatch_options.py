# SPDX-License-Identifier: Apache-2.0
"""Tests of what sbatch is asked for: options from the configuration, the GPU type, the command
line.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm.container import PYXIS_OPTIONS
from llmb.builtin.slurm.sbatch_options import gpu_request, gpus_asked, options_of
from llmb.builtin.slurm.sbatch_script import Setting, render
from llmb.contract.launch import Launch, Program, Stamp
from llmb.contract.schema import ClusterConfig, GpuTypeConfig
from llmb.core import yamlfile
from llmb.core.times import clock
from llmb.errors import InputFaults, UsageError
from llmb.plan.config_layers import with_slurm_args
from llmb.plan.images import file_name, image_path
from llmb.plan.read_config import read_config
from llmb_installer.cluster_types import all_types

STAMP = Stamp(id="abc", timestamp="17", directory="/i/100%/x_17")
LAUNCH = Launch(
    name="x",
    nodes=2,
    ranks_per_node=8,
    time_limit=5400,
    program=Program(module="m"),
    venv="/v",
    gpu_type="h100",
)


def config(**slurm: Any) -> ClusterConfig:
    data = {
        "cluster_type": "slurm",
        "gpu_type": "h100",
        "llmb_install": "/i",
        "gpu_types": {"h200": {"like": "h100", "partition": "batch2", "gres": 4}, "gb200": {}},
        "slurm": {
            "account": "a",
            "gpu": {"partition": "batch", "gres": 8},
            "cpu": {"partition": "cpu"},
            **slurm,
        },
    }
    return read_config(yamlfile.Document(name="c.yaml", data=data), cluster_types=all_types)


def options(
    place: ClusterConfig, launch: Launch = LAUNCH, *, knows_segment: bool = True
) -> dict[str, str | None]:
    return options_of(launch, STAMP, place, knows_segment=knows_segment)


def test_all_of_them_in_order() -> None:
    assert options(config()) == {
        "job-name": "x.abc",
        "nodes": "2",
        "ntasks-per-node": "8",
        "time": "01:30:00",
        "chdir": "/i/100%/x_17/x",
        "output": "/i/100%%/x_17/x/sbatch_x.out",
        "open-mode": "append",
        "export": "ALL",
        "no-requeue": None,
        "exclusive": None,
        "mem": "0",
        "account": "a",
        "partition": "batch",
        "gres": "gpu:8",
    }


def test_a_later_attempt_has_a_folder_of_its_own() -> None:
    second = replace(STAMP, id="abc-2", attempt=2)
    got = options_of(LAUNCH, second, config(), knows_segment=True)
    assert (got["job-name"], got["chdir"]) == ("x.abc-2", "/i/100%/x_17/attempt-2")


@pytest.mark.parametrize(
    ("gpu_type", "partition", "gres"),
    [("h100", "batch", "gpu:8"), ("h200", "batch2", "gpu:4"), ("cpu", "cpu", None)],
)
def test_each_gpu_type_has_its_own(gpu_type: str, partition: str, gres: str | None) -> None:
    got = options(config(), replace(LAUNCH, gpu_type=gpu_type))
    assert (got["partition"], got.get("gres")) == (partition, gres)


@pytest.mark.parametrize(
    ("given", "asked", "wanted"),
    [
        (8, "gpu:8", (None, 8)),
        ("8", "gpu:8", (None, 8)),
        ("h100:8", "gpu:h100:8", ("h100", 8)),
        ("gpu:h100:8", "gpu:h100:8", ("h100", 8)),
        ("gpu:8,nvme:1", "gpu:8,nvme:1", (None, 8)),
        ("nvme:1,gpu:b200:4", "nvme:1,gpu:b200:4", ("b200", 4)),
        ("gpu", "gpu", (None, 1)),
    ],
)
def test_gres_in_every_spelling(given: object, asked: str, wanted: tuple[str | None, int]) -> None:
    assert options(config(gpu={"gres": given}))["gres"] == asked
    assert gpu_request(asked) == wanted


def test_a_cluster_without_gres() -> None:
    assert "gres" not in options(config(gpu={"gres": None}))
    assert gpu_request(None) == gpu_request("None") == (None, None)


def test_every_option_of_the_configuration() -> None:
    given = {
        "qos": "q",
        "reservation": "r",
        "nodelist": "n[1-2]",
        "exclude": "n3",
        "constraint": "a&b",
        "nice": 7,
    }
    got = options(config(**given))
    assert {name: got[name] for name in given} == {
        name: str(value) for name, value in given.items()
    }


@pytest.mark.parametrize(
    ("nodes", "ranks", "segment"),
    [
        (18, 4, None),
        (32, 4, "16"),
        (36, 4, "18"),
        (128, 4, "16"),
        (19, 4, "1"),
        (64, 8, None),
        (54, 4, "18"),
    ],
)
def test_racks_of_four_gpus_a_node(nodes: int, ranks: int, segment: str | None) -> None:
    launch = replace(LAUNCH, nodes=nodes, ranks_per_node=ranks)
    assert options(config(), launch).get("segment") == segment
    assert "segment" not in options(config(), launch, knows_segment=False)
    assert options(config(segment=2), launch)["segment"] == "2"
    assert "segment" not in options(config(gpu={"segment": None}), launch)


@pytest.mark.parametrize(
    ("nodes", "ranks", "segment"),
    [(1, 4, "1"), (16, 4, "16"), (18, 4, "18"), (36, 4, "18"), (8, 8, None)],
)
def test_a_launch_for_one_rack(nodes: int, ranks: int, segment: str | None) -> None:
    launch = replace(LAUNCH, nodes=nodes, ranks_per_node=ranks, one_rack=True)
    assert options(config(), launch).get("segment") == segment
    assert "segment" not in options(config(), launch, knows_segment=False)
    assert options(config(segment=2), launch)["segment"] == "2"


def test_further_options_override_all_others() -> None:
    place = config(
        args={"exclusive": False, "mem": "64G", "comment": "a b", "overcommit": True, "gres": None}
    )
    got = options(place)
    assert "exclusive" not in got
    assert "gres" not in got
    assert (got["mem"], got["comment"], got["overcommit"]) == ("64G", "a b", None)
    got = options(
        with_slurm_args(
            place, {"mem": "1G", "--gpus-per-node": "8", "account": "other", "hold": True}
        )
    )
    assert (got["mem"], got["gpus-per-node"], got["account"], got["hold"]) == (
        "1G",
        "8",
        "other",
        None,
    )
    assert got["comment"] == "a b"


@pytest.mark.parametrize(
    ("gres", "args", "left", "asked"),
    [
        (8, {"gpus-per-node": "h100:4"}, None, ("h100", 4)),
        ("gpu:8,nvme:1", {"gpus_per_node": 4}, "nvme:1", (None, 4)),
        (8, {"gpus": "16"}, None, (None, None)),
        (8, {"gpus-per-node": "4", "gres": "nvme:1"}, "nvme:1", (None, 4)),
        (8, {"gpus-per-node": None}, "gpu:8", (None, 8)),
    ],
)
def test_gpus_are_asked_for_in_one_way(
    gres: object, args: dict[str, object], left: str | None, asked: tuple[str | None, int | None]
) -> None:
    """Slurm adds a gres to other counts of GPUs, and then no node has so many."""
    got = options(config(gpu={"gres": gres}, args=args))
    assert got.get("gres") == left
    assert gpus_asked(got) == asked


@pytest.mark.parametrize(
    ("slurm", "own", "left", "per_node"),
    [
        ({"gpus_per_node": "h100:4"}, None, None, "h100:4"),
        ({"gpus_per_node": 4, "gpu": {"gres": "gpu:8,nvme:1"}}, None, "nvme:1", "4"),
        ({"gpu": {"gpus_per_node": 4, "gres": 8}}, None, None, "4"),
        ({"gpus_per_node": 8, "gpu": {"gpus_per_node": None, "gres": 2}}, None, "gpu:2", None),
        ({"gpus_per_node": 8}, 2, "gpu:2", None),
        ({"gpus_per_node": 8, "args": {"gres": "gpu:1"}}, None, "gpu:1", None),
        ({"gpus_per_node": 8, "args": {"gpus-per-node": 1}}, None, None, "1"),
    ],
)
def test_a_cluster_that_counts_gpus_by_node(
    slurm: dict[str, object], own: int | None, left: str | None, per_node: str | None
) -> None:
    place = replace(config(**slurm), gpu_types={"h100": GpuTypeConfig(gres=own)})
    got = options(place, replace(LAUNCH, gpu_type="h100"))
    assert (got.get("gres"), got.get("gpus-per-node")) == (left, per_node)


def test_every_attempt_has_the_options_of_the_command_line() -> None:
    """Those of the configuration are as they are by then."""
    kept = replace(LAUNCH, slurm_args={"hold": True, "comment": "mine"})
    got = options(config(args={"comment": "a b", "mem": "64G"}), kept)
    assert (got["hold"], got["comment"], got["mem"]) == (None, "mine", "64G")


@pytest.mark.parametrize(
    "name", ["job-name", "--output", "ntasks_per_node", "requeue", "A", "", "x y"]
)
def test_options_that_are_llmbs_own(name: str) -> None:
    with pytest.raises(InputFaults) as raised:
        config(args={name: "x"})
    assert raised.value.faults[0].message.startswith(f"slurm.args.{name}")
    with pytest.raises(UsageError):
        with_slurm_args(config(), {name: "x"})


def test_options_of_sbatch_are_for_slurm_alone() -> None:
    local = ClusterConfig(cluster_type="local", gpu_type="cpu", kind=all_types()["local"])
    assert with_slurm_args(local, {}) is local
    with pytest.raises(UsageError):
        with_slurm_args(local, {"mem": "1"})


@pytest.mark.parametrize("name", ["A.B", "1A", "A B", "A-B", ""])
def test_a_name_that_a_shell_cannot_set(name: str) -> None:
    setting = Setting(config=config(), programs="/p", knows_segment=True)
    with pytest.raises(UsageError) as raised:
        render(replace(LAUNCH, environment={name: "x"}), STAMP, setting)
    assert (raised.value.code, raised.value.key) == ("variable-name", name)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("nvcr.io/nvidia/nemo:25.04.01", "nvidia+nemo+25.04.01.sqsh"),
        ("nvcr.io#nvidia/nemo:25.04.01", "nvidia+nemo+25.04.01.sqsh"),
        ("docker://nvcr.io/nvidia/nemo:25.04.01", "nvidia+nemo+25.04.01.sqsh"),
        ("nvidia/nemo:25.04.01", "nvidia+nemo+25.04.01.sqsh"),
        ("localhost:5000/me/x@sha256:ab", "me+x+sha256+ab.sqsh"),
        ("localhost/me/x", "me+x.sqsh"),
        ("ubuntu:22.04", "ubuntu+22.04.sqsh"),
    ],
)
def test_the_file_of_an_image(reference: str, name: str) -> None:
    assert file_name(reference) == name
    assert image_path(reference, config()) == Path("/i/images") / name


def test_an_image_that_is_a_file_already() -> None:
    assert image_path("/x/y.sqsh", config()) == Path("/x/y.sqsh")


@pytest.mark.parametrize(
    ("image", "writable"),
    [
        ("nvcr.io/nvidia/nemo:25.04.01", False),
        ("nvcr.io/nvidia/nemo:25.07.02", False),
        ("nvcr.io/nvidia/nemo:25.08", True),
        ("nvcr.io/nvidia/nemo:26.01", True),
        ("/images/nvidia+nemo+25.09.sqsh", True),
        ("/images/nvidia+nemo+25.04.01.sqsh", False),
        ("nvcr.io/nvidia/pytorch:25.09-py3", False),
        ("nvcr.io/nvidia/nemo@sha256:0", False),
    ],
)
def test_nemos_images_from_25_08_on_are_written_to(image: str, writable: bool) -> None:
    setting = Setting(config=config(container="pyxis"), programs="/p", knows_segment=True)
    text = render(replace(LAUNCH, image=image, venv=None), STAMP, setting)
    assert ("--no-container-mount-home --container-writable" in text) == writable
    assert "--no-container-mount-home" in text


LACKING = frozenset(
    {"container-workdir", "no-container-mount-home", "container-writable", "container-env", "pmix"}
)


def test_what_this_srun_does_not_know_is_omitted() -> None:
    """Without --container-env, an image's own values would override the job's: each rank sets them
    again.
    """
    launch = replace(
        LAUNCH,
        image="nvcr.io/nvidia/nemo:25.09",
        environment={"NOTE": "it's $5"},
        secrets=("HF_TOKEN",),
    )
    setting = Setting(config=config(container="pyxis"), programs="/p", knows_segment=True)
    whole, less = (
        render(launch, STAMP, setting),
        render(launch, STAMP, replace(setting, lacks=LACKING)),
    )
    # this image is written into
    for option in {*PYXIS_OPTIONS, "mpi=pmix"} - {"container-readonly"}:
        assert f"--{option}" in whole
        assert f"--{option}" not in less
    assert "--container-image=/i/images/nvidia+nemo+25.09.sqsh" in less
    ranks = less[less.index("\nsrun ") :]
    assert "export NOTE=" in ranks
    assert "export PYTHONPATH=/p" in ranks
    assert "HF_TOKEN" not in less
    assert "export NOTE=" not in whole[whole.index("\nsrun ") :]
    assert "--mpi=pmi2" in render(
        launch, STAMP, replace(setting, config=config(container="pyxis", mpi="pmi2"), lacks=LACKING)
    )


def test_a_time_limit_of_the_configuration_is_the_launchs_own_by_then() -> None:
    place = config(args={"time": "04:00:00"})
    assert options(place)["time"] == clock(LAUNCH.time_limit)
    assert options(place, replace(LAUNCH, slurm_args={"time": "7"}))["time"] == "7"
    assert "time" not in options(place, replace(LAUNCH, slurm_args={"time": False}))
