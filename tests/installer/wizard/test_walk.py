# SPDX-License-Identifier: Apache-2.0
"""Tests of the questions and the resulting answers, without a terminal: clusters of every kind."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.slurm.partitions import read
from llmb.contract.spec import Workload
from llmb.core.yamlfile import Document
from llmb_installer.answers.layers import NOTHING, override
from llmb_installer.answers.read import read_answers
from llmb_installer.answers.schema import Answers
from llmb_installer.detect.detected import Detected
from llmb_installer.detect.machine import MachineFound, find_folder
from llmb_installer.detect.scheduler import SlurmFound, read_nodes
from llmb_installer.wizard import common, conversation
from llmb_installer.wizard.ask_secrets import Tokens
from llmb_installer.wizard.common import FOLDER
from llmb_installer.wizard.question import Question, WizardView
from llmb_installer.wizard.walk import (
    QUESTIONS,
    Replies,
    ask_questions,
    list_current_values,
    suggest_default,
)

SINFO = """\
batch*|up|4:00:00|1-64|120|idle|gpu:h100:8(S:0-1)|h[001-120]|none
debug|up|1:00:00|1-2|2|idle|gpu:h100:8(S:0-1)|h[001-002]|none
new|up|1-00:00:00|1-infinite|16|mixed|gpu:nvidia_h200:8|x[01-16]|none
rack|up|infinite|1-infinite|18|idle|gpu:gb200:4(S:0,1)|g[01-18]|none
cpu|up|infinite|1-infinite|40|idle|(null)|c[01-40]|none
old|down|infinite|1-infinite|4|idle|gpu:a100:8|a[1-4]|none
"""
NODES = (
    "NodeName=h001 Arch=x86_64 Partitions=batch,debug\nNodeName=g01 Arch=aarch64 Partitions=rack\n"
)
BIG = SlurmFound(
    cluster="big",
    partitions=read(SINFO),
    nodes=tuple(read_nodes(NODES)),
    accounting=True,
    accounts=("team", "other"),
    pyxis=True,
    mpi=("pmix", "pmi2"),
)
RUNAI = {
    "BASE_URL": "https://h/api/v1",
    "PROJECT_NAME": "p",
    "CUSTOM_MOUNT": "w:/w:c",
    "APP_ID": "me",
}


def detected_in(tmp_path: Path, **fields: Any) -> Detected:
    machine = fields.pop(
        "machine", MachineFound(architecture="x86_64", pythons={}, venv_types=("uv", "venv"))
    )
    return Detected(home=tmp_path, cwd=tmp_path, machine=machine, **fields)


class Prompt:
    """Answers with ``values`` and otherwise the default, and remembers the questions."""

    def __init__(self, **values: Any) -> None:
        self.values = {key.replace("__", "."): value for key, value in values.items()}
        self.asked: list[str] = []

    def __call__(
        self, question: Question, view: WizardView, default: Any, can_go_back: bool
    ) -> Any:
        self.asked.append(question.key)
        value = self.values.get(question.key, default)
        assert question.fault(view, value) is None, (question.key, value, question.options(view))
        return value


def run(
    detected: Detected,
    workloads: dict[str, Workload],
    prompt: Prompt,
    given: Document = NOTHING,
    chosen: dict[str, Any] | None = None,
) -> Answers:
    base = WizardView(detected=detected, workloads=workloads, data=given.data)
    layer = ask_questions(base, Replies(chosen={} if chosen is None else chosen), prompt)
    assert layer is not None
    return read_answers(override(given, layer, "your answers"), workloads=workloads)


def test_slurm_with_pyxis(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    prompt = Prompt()
    answers = run(detected_in(tmp_path, slurm=BIG), workloads, prompt)
    assert prompt.asked == [
        "cluster_type",
        "install",
        "slurm.gpu.partition",
        "gpu_types",
        "slurm.account",
        "slurm.container",
        "method",
        "workloads",
    ]
    assert answers.slurm is not None
    assert answers.slurm.gpu.given == {"partition": "batch", "gres": 8}
    assert answers.slurm.cpu.given == {"partition": "cpu", "gres": None}
    assert (answers.slurm.account, answers.slurm.container, answers.slurm.mpi) == (
        "team",
        "pyxis",
        None,
    )
    assert (answers.gpu_type, answers.node_architecture, answers.cluster_name) == (
        "h100",
        "x86_64",
        "big",
    )
    own = {name: (kind.like, kind.partition, kind.gres) for name, kind in answers.gpu_types.items()}
    assert own == {"h200": ("h100", "new", 8), "gb200": (None, "rack", 4)}
    assert answers.workloads == tuple(workloads)


def test_at_most_twelve_questions(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    bare = MachineFound(architecture="x86_64", pythons={}, venv_types=("uv", "venv", "conda"))
    silent = SlurmFound(fault="Slurm does not answer")
    for fields in ({"slurm": BIG}, {"slurm": silent}, {"environ": RUNAI}, {}):
        prompt = Prompt(slurm__container="none", runai__pvc="w:/w:c")
        run(detected_in(tmp_path, machine=bare, **fields), workloads, prompt)
        assert len(prompt.asked) <= 12, prompt.asked


@pytest.mark.parametrize(("answer", "gres"), [("8", 8), ("h100:8", "h100:8"), ("", None)])
def test_gpus_per_node_are_asked_for_where_slurm_does_not_answer(
    tmp_path: Path, workloads: dict[str, Workload], answer: str, gres: Any
) -> None:
    prompt = Prompt(slurm__gpu__gres=answer)
    answers = run(
        detected_in(tmp_path, slurm=SlurmFound(fault="Slurm does not answer")), workloads, prompt
    )
    assert "slurm.gpu.gres" in prompt.asked
    assert answers.slurm is not None
    assert answers.slurm.gpu.given["gres"] == gres


def test_another_partition_brings_other_gpus(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    prompt = Prompt(slurm__gpu__partition="new", gpu_types=["gb200"])
    answers = run(detected_in(tmp_path, slurm=BIG), workloads, prompt)
    assert "like" in prompt.asked
    assert "node_architecture" in prompt.asked, "no node of it reports its architecture"
    assert answers.gpu_type == "h200"
    assert answers.gpu_types["h200"].like == "h100"
    assert {*answers.gpu_types} == {"h200", "gb200"}


def test_a_partition_with_two_kinds_of_gpus(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    mixed = SlurmFound(
        cluster="m",
        partitions=read(
            "all*|up|infinite|1-infinite|4|idle|gpu:H100-SXM5:8|a[1-4]|none\n"
            "all*|up|infinite|1-infinite|4|idle|gpu:a100:4|b[1-4]|none\n"
        ),
    )
    prompt = Prompt(gpu_type="a100")
    answers = run(detected_in(tmp_path, slurm=mixed), workloads, prompt)
    assert "slurm.gpu.partition" not in prompt.asked
    assert answers.slurm is not None
    assert answers.slurm.gpu.given == {"partition": "all", "gres": "a100:4"}
    assert answers.gpu_types["h100"].gres == "H100-SXM5:8"


def test_a_cluster_without_gres_accounts_or_pyxis(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    plain = SlurmFound(
        cluster="p",
        partitions=read("work*|up|infinite|1-infinite|4|idle|(null)|n[1-4]|none\n"),
        mpi=("pmi2",),
    )
    prompt = Prompt(gpu_type="h100")
    answers = run(detected_in(tmp_path, slurm=plain), workloads, prompt)
    assert prompt.asked == [
        "cluster_type",
        "install",
        "gpu_type",
        "gpus_per_node",
        "slurm.gpu.gres",
        "node_architecture",
        "method",
        "venv_type",
        "workloads",
    ]
    assert answers.slurm is not None
    assert (answers.slurm.partition, answers.slurm.gpu.given) == ("work", {"gres": None})
    assert (answers.slurm.account, answers.slurm.container) == (None, "none")


def test_a_cluster_of_cpus_alone(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    """Without GPUs as GRES, cpu is proposed, and its jobs use the chosen partition."""
    sinfo = "a*|up|infinite|1-infinite|4|idle|(null)|n[1-4]|none\nb|up|infinite|1-infinite|2|idle|(null)|m[1-2]|none\n"
    prompt = Prompt(slurm__partition="b")
    answers = run(
        detected_in(tmp_path, slurm=SlurmFound(cluster="p", partitions=read(sinfo))),
        workloads,
        prompt,
    )
    assert prompt.asked[:4] == ["cluster_type", "install", "slurm.partition", "gpu_type"]
    assert answers.gpu_type == "cpu"
    assert answers.slurm is not None
    assert [answers.slurm.option("partition", kind) for kind in ("gpu", "cpu")] == ["b", "b"]
    assert answers.slurm.container == "none"


def test_a_partition_without_gpus_beside_others(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    """The partition was given: its nodes decide what is proposed, not those of other partitions."""
    given = Document(name="f", data={"cluster_type": "slurm", "slurm": {"partition": "cpu"}})
    prompt = Prompt()
    answers = run(detected_in(tmp_path, slurm=BIG), workloads, prompt, given)
    assert answers.gpu_type == "cpu"
    assert "gpu_types" not in prompt.asked, "who chooses cpu is not offered GPUs"
    assert answers.gpu_types == {}


@pytest.mark.parametrize(
    ("sinfo", "words"),
    [
        (SINFO, "big, 6 partitions"),
        ("a*|up|infinite|1|4|idle|(null)|n[1-4]|none\n", "big, 1 partition, no GPUs as GRES"),
    ],
)
def test_what_was_found_of_slurm_is_shown(
    tmp_path: Path, workloads: dict[str, Workload], sinfo: str, words: str
) -> None:
    view = WizardView(
        detected=detected_in(tmp_path, slurm=replace(BIG, partitions=read(sinfo))),
        workloads=workloads,
    )
    assert words in next(
        one.title for one in common.CLUSTER_TYPE.options(view) if one.value == "slurm"
    )


@pytest.mark.parametrize(
    ("sinfo", "titles"),
    [
        (
            "a*|up|infinite|1|4|idle|gpu:h200:8|n[1-4]|none\n"
            "a*|up|infinite|1|1|idle|gpu:a100:4|m1|none\n",
            ["h200: Slurm shows 4 nodes with 8", "a100: Slurm shows 1 node with 4"],
        ),
        (
            "a*|up|infinite|1|4|idle|(null)|n[1-4]|none\n",
            ["cpu: Slurm shows no GPUs in this partition"],
        ),
        ("a*|up|infinite|1|4|idle|gpu:8|n[1-4]|none\n", []),
    ],
    ids=["two types", "none", "no type"],
)
def test_the_first_gpu_types_are_those_that_slurm_shows(
    tmp_path: Path, workloads: dict[str, Workload], sinfo: str, titles: list[str]
) -> None:
    view = WizardView(
        detected=detected_in(tmp_path, slurm=replace(BIG, partitions=read(sinfo))),
        workloads=workloads,
        data={"cluster_type": "slurm"},
    )
    options = common.GPU_TYPE.options(view)
    assert [option.title for option in options[: len(titles)]] == titles
    others = options[len(titles) :]
    assert "h100" in [option.value for option in others]
    assert [option.title for option in others] == [option.value for option in others]


@pytest.mark.parametrize(
    ("kinds", "mpi"), [(("pmix_v5", "pmi2"), "pmix_v5"), (("pmi2",), "pmi2"), ((), None)]
)
def test_mpi_where_there_is_no_pmix(
    tmp_path: Path, workloads: dict[str, Workload], kinds: tuple[str, ...], mpi: str | None
) -> None:
    slurm = SlurmFound(cluster="c", partitions=read(SINFO), pyxis=True, mpi=kinds)
    answers = run(detected_in(tmp_path, slurm=slurm), workloads, Prompt())
    assert answers.slurm is not None
    assert answers.slurm.mpi == mpi


def test_nodes_of_another_architecture_build_on_a_node(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    prompt = Prompt(slurm__gpu__partition="rack", slurm__container="none", gpu_types=[])
    answers = run(detected_in(tmp_path, slurm=BIG), workloads, prompt)
    assert (answers.node_architecture, answers.method) == ("aarch64", "srun")
    method = next(question for question in QUESTIONS if question.key == "method")
    view = WizardView(
        detected=detected_in(tmp_path, slurm=BIG),
        workloads=workloads,
        data={
            "cluster_type": "slurm",
            "node_architecture": "aarch64",
            "slurm": {"container": "none"},
        },
    )
    assert method.fault(view, "here") is not None


def test_runais_variables_are_the_defaults(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    prompt = Prompt()
    answers = run(detected_in(tmp_path, environ=RUNAI), workloads, prompt)
    assert prompt.asked[2:6] == ["runai.base_url", "runai.project", "runai.pvc", "runai.app_id"]
    assert answers.section is not None
    assert (answers.section.pvc.path, answers.section.app_id, answers.gpu_type) == (
        "/w",
        "me",
        "h100",
    )
    assert answers.slurm is None


def test_this_machine(
    tmp_path: Path, workloads: dict[str, Workload], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    prompt = Prompt(workloads=["pretrain_llama3.1"])
    answers = run(detected_in(tmp_path), workloads, prompt)
    assert prompt.asked == ["cluster_type", "install", "venv_type", "workloads"]
    assert (answers.gpu_type, answers.workloads, answers.venv_type) == (
        "cpu",
        ("pretrain_llama3.1",),
        "uv",
    )


def test_given_answers_are_not_asked_for(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    given = override(
        NOTHING,
        {
            "cluster_type": "slurm",
            "slurm": {"partition": "debug", "account": None},
            "gpu_types": {},
            "method": "here",
        },
        "a.yaml",
    )
    prompt = Prompt()
    answers = run(detected_in(tmp_path, slurm=BIG), workloads, prompt, given)
    assert not {"cluster_type", "slurm.gpu.partition", "slurm.account", "gpu_types", "method"} & {
        *prompt.asked
    }
    assert answers.slurm is not None
    assert (answers.slurm.partition, answers.slurm.account, answers.gpu_types) == (
        "debug",
        None,
        {},
    )


def test_a_change_asks_only_the_questions_it_opens(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    detected, chosen = detected_in(tmp_path, slurm=BIG, environ=RUNAI), dict[str, Any]()
    run(detected, workloads, Prompt(), chosen=chosen)
    chosen["slurm.container"] = "none"
    second = Prompt()
    run(detected, workloads, second, chosen=chosen)
    assert second.asked == ["venv_type"]
    chosen["cluster_type"] = "runai"
    third = Prompt()
    answers = run(detected, workloads, third, chosen=chosen)
    assert third.asked == [
        "runai.base_url",
        "runai.project",
        "runai.pvc",
        "runai.app_id",
        "gpu_type",
    ]
    assert answers.slurm is None


def test_a_given_answer_can_be_changed_at_the_review(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    given = override(
        NOTHING, {"cluster_type": "local", "install": str(tmp_path), "gpu_type": "h100"}, "a.yaml"
    )
    base = WizardView(detected=detected_in(tmp_path), workloads=workloads, data=given.data)
    rows = {question.key: value for question, _, value in list_current_values(base, {})}
    assert (rows["gpu_type"], rows["install"]) == ("h100", str(tmp_path))
    assert (
        run(detected_in(tmp_path), workloads, Prompt(), given, {"gpu_type": "cpu"}).gpu_type
        == "cpu"
    )


def test_the_review_shows_the_answers_of_an_installation(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    pvc = {"name": "w", "path": "/w", "claim": "c"}
    data = {
        "cluster_type": "runai",
        "runai": {"base_url": "https://h/api", "project": "p", "pvc": pvc},
    }
    base = WizardView(detected=detected_in(tmp_path), workloads=workloads, data=data)
    rows = {question.key: value for question, _, value in list_current_values(base, {})}
    assert rows["runai.pvc"] == "w:/w:c"
    own = {"gb200": {"partition": "rack", "gres": 4}}
    data = {
        "cluster_type": "slurm",
        "gpu_type": "h100",
        "gpu_types": own,
        "slurm": {"cpu": {"gres": None}},
    }
    base = WizardView(detected=detected_in(tmp_path, slurm=BIG), workloads=workloads, data=data)
    rows = {
        question.key: (value, question.shown(view, value))
        for question, view, value in list_current_values(base, {})
    }
    assert rows["gpu_types"] == (["gb200"], "gb200")
    assert rows["slurm.cpu.partition"] == ("", "none")


def test_every_question_that_applies_is_in_the_review(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    chosen: dict[str, Any] = {}
    prompt = Prompt()
    run(detected_in(tmp_path, slurm=BIG), workloads, prompt, chosen=chosen)
    base = WizardView(detected=detected_in(tmp_path, slurm=BIG), workloads=workloads)
    keys = [question.key for question, _, _ in list_current_values(base, chosen)]
    assert {*prompt.asked} < {*keys}
    assert {"gpu_type", "slurm.cpu.partition", "node_architecture", "slurm.mpi", "cluster_name"} < {
        *keys
    }
    assert all(
        question.shown(view, value) for question, view, value in list_current_values(base, chosen)
    )


def test_an_earlier_answer_is_the_default(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    view = WizardView(
        detected=detected_in(tmp_path, slurm=BIG),
        workloads=workloads,
        data={"cluster_type": "slurm"},
    )
    partition = next(question for question in QUESTIONS if question.key == "slurm.gpu.partition")
    assert suggest_default(partition, view, {}) == "batch"
    assert suggest_default(partition, view, {partition.key: "debug"}) == "debug"
    assert suggest_default(partition, view, {partition.key: "gone"}) == "batch"


def test_an_empty_folder_is_the_default(tmp_path: Path, workloads: dict[str, Workload]) -> None:
    empty, home = tmp_path / "empty", tmp_path / "home"
    empty.mkdir()
    machine = MachineFound(architecture="x86_64", pythons={}, venv_types=("venv",))
    folder = next(question for question in QUESTIONS if question.key == "install")

    def default(cwd: Path) -> Any:
        detected = Detected(home=home, cwd=cwd, machine=machine)
        return folder.default(
            WizardView(detected=detected, workloads=workloads, data={"cluster_type": "local"})
        )

    assert default(empty) == str(empty)
    assert default(tmp_path) == str(home / "llmb")
    named = Detected(home=home, cwd=empty, machine=machine, named=tmp_path / "named")
    view = WizardView(detected=named, workloads=workloads, data={"cluster_type": "local"})
    assert folder.default(view) == str(tmp_path / "named"), "LLMB_INSTALL names it"


@pytest.mark.parametrize(
    ("cwd", "proposed"),
    [("new", "new"), ("same", "old"), ("old", "old"), ("used", "old"), ("home", "old")],
)
def test_an_empty_current_folder_comes_before_that_of_last_time(
    cwd: str, proposed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("new", "same", "used", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "used/file").touch()
    (tmp_path / "old").mkdir()
    environ = {"LLMB_STATE_DIR": str(tmp_path / "state")}
    draft = {"install": str(tmp_path / "old"), conversation._CURRENT: str(tmp_path / "same")}
    assert conversation.save_draft(draft, environ)
    machine = MachineFound(architecture="x86_64", pythons={}, venv_types=("venv",))
    plugins: Any = None
    here = conversation._Conversation(
        detected=Detected(home=tmp_path / "home", cwd=tmp_path / cwd, machine=machine),
        plugins=plugins,
        show_plan=lambda _: None,
        environ=environ,
        dry_run=False,
    )
    here.memory.earlier = conversation.load_draft(environ)
    sentence = here.prefer_empty_folder()
    assert here.memory.earlier["install"] == str(tmp_path / proposed)
    assert bool(sentence) == (proposed == "new")
    assert set(here.memory.earlier) == {"install"}


@pytest.mark.parametrize("below", ["", "x/y"])
def test_a_file_is_no_folder(below: str, tmp_path: Path, workloads: dict[str, Workload]) -> None:
    file = tmp_path / "full"
    file.touch()
    view = WizardView(
        detected=detected_in(tmp_path), workloads=workloads, data={"cluster_type": "local"}
    )
    assert str(FOLDER.check(view, str(file / below))).startswith(f"{file} is a file")


def test_a_folder_of_another_cluster_type_is_refused(
    tmp_path: Path,
    workloads: dict[str, Workload],
    monkeypatch: pytest.MonkeyPatch,
    wording: Callable[..., None],
) -> None:
    (tmp_path / "cluster_config.yaml").write_text("cluster_type: slurm\n")
    folder = next(question for question in QUESTIONS if question.key == "install")
    view = WizardView(
        detected=detected_in(tmp_path), workloads=workloads, data={"cluster_type": "local"}
    )
    wording("llmb-install questions", str(folder.fault(view, str(tmp_path))))
    assert folder.fault(view, str(tmp_path / "new")) is None
    slurm = WizardView(
        detected=detected_in(tmp_path), workloads=workloads, data={"cluster_type": "slurm"}
    )
    found = replace(
        find_folder(tmp_path),
        free=74_200_000_000,
        mount=Path("/home"),
        file_system="ext4",
        shared=False,
    )
    monkeypatch.setattr(common, "find_folder", lambda _: found)
    wording("llmb-install questions", str(folder.note(slurm, str(tmp_path))))


@pytest.mark.parametrize(
    "first", ["launcher: {}", "llmb_repo: /x"], ids=["releases to 25.12", "releases since 26"]
)
def test_a_folder_of_nvidias_tools_is_refused_with_the_command_that_imports_it(
    tmp_path: Path, workloads: dict[str, Workload], first: str
) -> None:
    (tmp_path / "cluster_config.yaml").write_text(f"{first}\n")
    folder = next(question for question in QUESTIONS if question.key == "install")
    view = WizardView(
        detected=detected_in(tmp_path), workloads=workloads, data={"cluster_type": "slurm"}
    )
    assert f"llmb-install import {tmp_path}" in str(folder.fault(view, str(tmp_path)))


def test_a_workload_without_a_size_for_the_gpus_is_refused(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    question = next(question for question in QUESTIONS if question.key == "workloads")
    view = WizardView(
        detected=detected_in(tmp_path),
        workloads=workloads,
        data={"cluster_type": "slurm", "gpu_type": "a100", "slurm": {"container": "pyxis"}},
    )
    options = {option.value: option for option in question.options(view)}
    assert [key for key, option in options.items() if option.refused] == [
        "pretrain_llama3.1",
        "pretrain_nemotronh",
    ]
    assert question.default(view) == ["pretrain_nemotron4"]


def test_the_review_shows_names_of_secrets_only(wording: Callable[..., None]) -> None:
    tokens = Tokens(
        known={"A_TOKEN": "from the environment"},
        typed={"HF_TOKEN": "hf_secret"},
        skipped=("X_KEY",),
    )
    assert [line.partition(":")[0] for line in tokens.lines()] == ["A_TOKEN", "HF_TOKEN", "X_KEY"]
    assert "hf_secret" not in repr(tokens) + "".join(tokens.lines())
    wording("llmb-install questions", "\n".join(tokens.lines()))


@pytest.mark.parametrize(
    "typed",
    ["~nobody-at-all/x", "/a:b", "", "/$HOME", "/proc", "/proc/self/llmb"],
    ids=[
        "an unknown user",
        "a colon",
        "nothing",
        "a variable",
        "the kernel's",
        "below the kernel's",
    ],
)
def test_a_folder_that_cannot_be_used(
    tmp_path: Path, workloads: dict[str, Workload], typed: str, wording: Callable[..., None]
) -> None:
    view = WizardView(
        detected=detected_in(tmp_path), workloads=workloads, data={"cluster_type": "local"}
    )
    assert FOLDER.check(view, str(tmp_path / "new")) is None
    wording("llmb-install questions", str(FOLDER.check(view, typed)))


def test_the_choice_of_all_frameworks_counts_them(
    tmp_path: Path, workloads: dict[str, Workload]
) -> None:
    llama = workloads["pretrain_llama3.1"]
    bridge = llama.frameworks["bridge"]
    third = replace(bridge, name="titan", title="Titan", description="")
    others = {"pretrain_llama3.1": llama.known_to({**llama.frameworks, "titan": third})}
    found = []
    for offered in (workloads, others):
        data = {"cluster_type": "slurm", "gpu_type": "h100"}
        view = WizardView(detected=detected_in(tmp_path), workloads=offered, data=data)
        found.append([option.title for option in common.FRAMEWORK.options(view)][2:])
    assert found == [
        ["both: the images or environments of both"],
        ["titan: Titan", "both: the images or environments of all"],
    ]


def test_the_texts_of_all_questions(
    tmp_path: Path, workloads: dict[str, Workload], wording: Callable[..., None]
) -> None:
    """With the choices on a large Slurm cluster, and on Run:ai."""
    for fields, data in (
        ({"slurm": BIG}, {}),
        ({"environ": RUNAI}, {"cluster_type": "runai", "gpu_type": "h100"}),
    ):
        base = WizardView(detected=detected_in(tmp_path, **fields), workloads=workloads, data=data)
        lines = []
        for question, view, value in list_current_values(base, {}):
            lines += [question.text, *(f"  {option.title}" for option in question.options(view))]
            lines.append(f"  [{question.label}: {question.shown(view, value)}]")
        wording("llmb-install questions", "\n".join(lines))
