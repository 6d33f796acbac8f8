# SPDX-License-Identifier: Apache-2.0
"""Feeds every reader of what users and other programs write with damaged inputs: an answer or a
fault, nothing else.

LLMB_TEST_FUZZ=100000 sets how many inputs are tried in all; tests/llmb/measure/test_fuzz.py does
the same for logs.
"""

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from llmb.builtin.plugins import builtin_plugins
from llmb.builtin.slurm import commands, partitions
from llmb.contract.launch import Launch, Program
from llmb.contract.record import RunRecord
from llmb.core import secrets, yamlfile
from llmb.core.backoff import retry_after
from llmb.core.process import ProcessId
from llmb.errors import LlmbError
from llmb.judge.export import read_export
from llmb.plan.config_layers import load_config
from llmb.plan.joblist import read_job_list
from llmb.plan.plan import make_plan
from llmb.plugins.loader import load_plugins
from llmb_exemplar import llmb_job_list
from llmb_exemplar.run_config import settings_of
from llmb_installer.answers.read import read_answers
from llmb_installer.cluster_types import all_types
from llmb_installer.detect import scheduler
from llmb_installer.venv import pipconf
from llmb_runai import phases
from llmb_runai.rest import RestClient
from llmb_runai.runai_config import RunaiConfig, RunaiPvc
from llmb_runai.token import Credentials
from llmb_runai.workloads import Api
from llmb_testing.exemplar_folder import run_config
from llmb_testing.job import SMALLEST_JOB
from sqshpull import manifests
from sqshpull.credentials import read_docker_config, read_netrc
from sqshpull.errors import PullError
from sqshpull.reference import ImageReference
from sqshpull.sign_in import read_challenges

COUNT = int(os.environ.get("LLMB_TEST_FUZZ", "5000"))
WORKLOADS = load_plugins(builtin_plugins()).workloads()
PIECES = [
    "",
    " ",
    "\n",
    "\t",
    "\x00",
    "\x1b[31m",
    "\u202e",
    "'",
    '"',
    "[",
    "]",
    "{",
    "}",
    ":",
    "=",
    "|",
    "%",
    "*a",
    "&a",
    "<<:",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "9" * 400,
    "nan",
    "\u0667",
    "é",
    "\ud800",
    "..",
    "~",
    "$(",
    "\\",
    "#",
    ",",
    "---",
    "2025-13-01",
    "-" * 50,
    "[" * 60,
    "\u00b2",
]
NEVER_WRONG = (
    "sinfo",
    "nodes",
    "sacct",
    "squeue",
    "Retry-After",
    "WWW-Authenticate",
    "Run:ai",
    "llmb-config",
)
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    10**400,
    1e308,
    "",
    "x",
    "\u0667",
    [],
    [[]],
    {},
    {"a": 1},
    "9" * 30,
    float("nan"),
]

CONFIG = """schema_version: 2
cluster_type: slurm
cluster_name: mycluster
gpu_type: h100
gpu_types: {h200: {like: h100, partition: batch2, gres: 8, gpus_per_node: 8}}
environment: {NCCL_DEBUG: WARN}
pass_environment: [HF_HOME]
slurm: {account: a, container: pyxis, gpu: {partition: batch, gres: 8}, cpu: {partition: cpu, gres: null}}
workloads: {installed: [pretrain_nemotron4], config: {pretrain_nemotron4: {venv_type: uv, environment: {A: b}}}}
"""
LIST = """pretrain_nemotron4_15b:
  dtypes: [fp8, bf16]
  scales: [16, 32]
  defaults: {env: {A: b}, params: {tp: 2}}
  tasks:
    - {scales: [64], repeats: 2, add_profile: true, overrides: {max_steps: 20, time_limit: '00:20:00', env: {C: true}}}
"""
SIMPLE = "pretrain_nemotron4_15b:\n# c\n(['fp8', 'bf16'], [16, 32], 1)\n('bf16', [64], 2, True)\n"
ANSWERS = """cluster_type: slurm
install: /tmp/x
gpu_type: h100
workloads: [pretrain_nemotron4_15b]
slurm: {account: a, gpu: {partition: p, gres: 8}}
environment: {A: b}
"""
EXPORT = {
    "results": [
        {
            "experiment": "e",
            "status": "Success",
            "window": [11, 44],
            "steps": 50,
            "time_mean_seconds": 2.5,
            "configuration": {
                "workload": "w",
                "model_size": "15b",
                "dtype": "bf16",
                "gpu_type": "h100",
                "scale": 16,
                "gbs": 64,
                "seq_length": 4096,
                "num_layers": 32,
            },
        }
    ]
}
PIP = (
    "[global]\nindex-url = https://u:p@host/simple\nextra-index-url =\n  https://a\n[install]\ncert"
    " = x\n"
)
DOCKER = {
    "auths": {
        "nvcr.io": {"auth": "JG9hdXRodG9rZW46eA=="},
        "https://index.docker.io/v1/": {"identitytoken": "t"},
    }
}
SECRETS = "HF_TOKEN=x\nexport A_KEY='y z'\n"
NETRC = 'machine nvcr.io login $oauthtoken password abc\n# c\ndefault login x password "a b"\n'
SINFO = (
    "batch*|up|1-00:00:00|1-8|4|idle|gpu:h100:8(S:0-1)|n[1-4]|none\n"
    "cpu|up|infinite|1-infinite|2|down*|(null)|c[1-2]|Not responding\n"
)
NODES = "NodeName=n1 Arch=x86_64 CoresPerSocket=56 Partitions=batch,cpu State=IDLE\n"
SACCT = (
    "17|CANCELLED by"
    " 1000|0:15|1744408121|1744409000|None|x.abc\n18|OUT_OF_ME+|0:125|Unknown|Unknown|Priority|y.def\n"
)
SQUEUE = "17|PENDING|Resources|N/A|N/A|x.abc\n18|RUNNING|None|1744408121|1744409000|y.def\n"
BEARER = (
    'Bearer realm="https://nvcr.io/proxy_auth",service="x",scope="repository:nvidia/nemo:pull",'
    ' Basic realm="y"'
)
CONFIG_BLOB = {
    "mediaType": "application/vnd.oci.image.config.v1+json",
    "digest": "sha256:" + "a" * 64,
    "size": 7,
}
LAYER = {
    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
    "digest": "sha256:" + "b" * 64,
    "size": 9,
}
MANIFEST = {"schemaVersion": 2, "config": CONFIG_BLOB, "layers": [LAYER]}
INDEX = {
    "manifests": [
        {
            "digest": "sha256:" + "c" * 64,
            "size": 3,
            "platform": {"architecture": "amd64", "os": "linux"},
        }
    ]
}
WORKLOAD = {
    "id": "w1",
    "name": "x-abc",
    "projectId": "p1",
    "phase": "Running",
    "phaseMessage": "m",
    "phaseReason": "r",
    "requestedPods": {"number": 1},
    "completedAt": "2025-04-11T14:48:45Z",
    "phaseUpdatedAt": "2025-04-11T14:48:45Z",
}
RUNAI = {
    "/token": {"accessToken": "t", "expiresIn": 3600},
    "/org-unit/projects": {"projects": [{"name": "p", "id": "1", "clusterId": "c1"}], "next": None},
    "/clusters": [{"uuid": "c1", "name": "one"}],
    "/workloads": {"workloads": [WORKLOAD], "next": None},
    "/workloads/w1": WORKLOAD,
    "/workloads/w1/events": {
        "events": [{"type": "Warning", "reason": "FailedScheduling", "message": "x"}]
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What reads a damaged ``sample`` (text, or data to be damaged and written as JSON)."""

    name: str
    sample: Any
    read: Callable[[bytes, Path], object]


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def from_file(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        path.chmod(0o600)
        return read(path)

    return from_file


def _text(read: Callable[[str], object]) -> Callable[[bytes, Path], object]:
    return lambda data, _: read(data.decode("utf-8", "replace"))


def _config(path: Path) -> object:
    return load_config(path.parent, {}, cluster_types=all_types)


def _pip(path: Path) -> object:
    return pipconf.settings({"PIP_CONFIG_FILE": str(path)})


def _docker(path: Path) -> object:
    return read_docker_config(path, "nvcr.io", {})


def _beside_log(path: Path) -> object:
    return settings_of(path.parent / "log-x.out")


def _planned(path: Path) -> object:
    config = load_config(_sound(path.parent), {}, cluster_types=all_types)[0]
    return make_plan(read_job_list(path, llmb_job_list).entries, WORKLOADS, config)


def _sound(folder: Path) -> Path:
    place = folder / "sound"
    place.mkdir(exist_ok=True)
    (place / "cluster_config.yaml").write_text(CONFIG)
    return place


def _runai(data: bytes, folder: Path) -> object:
    """Each answer of the API is damaged in its turn."""
    answers = json.loads(data.decode("utf-8", "replace"))

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1")
        found = answers.get(path) if isinstance(answers, dict) else None
        return httpx.Response(200, content=json.dumps(found, default=str).encode())

    client = RestClient("https://runai/api/v1", Credentials(id="a", secret="b"), is_hurried=True)
    client.__dict__["_http"] = httpx.Client(transport=httpx.MockTransport(answer))
    runai = RunaiConfig(
        base_url="https://runai", project="p", pvc=RunaiPvc(name="w", path="/w", claim="c")
    )
    api = Api(client=client, runai=runai)
    run = _run(folder)
    seen: list[object] = []
    calls: list[Callable[[], object]] = [
        lambda: api.project,
        lambda: api.by_ids(["w1", "w2"], 0.0),
        lambda: api.by_names(["x-abc"], 0.0),
        lambda: api.events("w1"),
        lambda: api.create("trainings", {"name": "n"}),
    ]
    for call in calls:
        try:
            seen.append(call())
        except (LlmbError, PullError) as error:
            seen.append(error)
    for one in seen[1:2]:
        for found in one.values() if isinstance(one, dict) else ():
            seen += [phases.of_workload(run, found, 1e9), phases.of_deleted(run, found, 1e9)]
    return seen


def _run(folder: Path) -> RunRecord:
    launch = Launch(name="x", nodes=1, ranks_per_node=1, time_limit=60, program=Program(module="m"))
    return RunRecord(
        id="abc",
        created=1.0,
        llmb_version="0",
        cluster_type="runai",
        directory=folder / "run",
        job=SMALLEST_JOB,
        launch=launch,
        script_name="run.sh",
        submitter=ProcessId(host="h", pid=1, start=1.0, boot="b"),
    )


def _answers(path: Path) -> object:
    return read_answers(yamlfile.load(path), workloads=WORKLOADS)


def _manifest(data: bytes, _: Path) -> object:
    reference = ImageReference.parse("nvcr.io/nvidia/nemo:25.04.01")
    found = manifests.parse_json(data, "the manifest")
    listed = manifests.read_index(found, reference)
    if listed is not None:
        return manifests.choose(listed, "amd64", reference)
    return manifests.read_manifest(found, reference)


READERS = [
    Reader(name="YAML", sample=LIST, read=_text(lambda text: yamlfile.parse(text, name="f"))),
    Reader(name="a YAML list", sample=LIST, read=_file("jobs.yaml", _planned)),
    Reader(name="a simple list", sample=SIMPLE, read=_file("jobs.txt", _planned)),
    Reader(name="cluster_config.yaml", sample=CONFIG, read=_file("cluster_config.yaml", _config)),
    Reader(name="answers", sample=ANSWERS, read=_file("answers.yaml", _answers)),
    Reader(name="exported results", sample=EXPORT, read=_file("x.json", read_export)),
    Reader(name="pip.conf", sample=PIP, read=_file("pip.conf", _pip)),
    Reader(name="docker's config.json", sample=DOCKER, read=_file("config.json", _docker)),
    Reader(
        name="netrc", sample=NETRC, read=_file("netrc", lambda p: read_netrc(p, ["nvcr.io"], {}))
    ),
    Reader(
        name="secrets",
        sample=SECRETS,
        read=_file(".config/llmb/secrets", lambda _: secrets.names()),
    ),
    Reader(name="sinfo", sample=SINFO, read=_text(partitions.read)),
    Reader(name="nodes", sample=NODES, read=_text(lambda text: list(scheduler.read_nodes(text)))),
    Reader(
        name="sacct", sample=SACCT, read=_text(lambda text: list(commands.read_accounting(text)))
    ),
    Reader(name="squeue", sample=SQUEUE, read=_text(lambda text: list(commands.read_queue(text)))),
    Reader(
        name="Retry-After",
        sample="Wed, 21 Oct 2026 07:28:00 GMT",
        read=_text(lambda text: _pauses(text)),
    ),
    Reader(
        name="WWW-Authenticate", sample=BEARER, read=_text(lambda text: read_challenges([text]))
    ),
    Reader(name="an image's manifest", sample=MANIFEST, read=_manifest),
    Reader(name="an image's index", sample=INDEX, read=_manifest),
    Reader(name="Run:ai", sample=RUNAI, read=_runai),
    Reader(
        name="llmb-config",
        sample=yaml.safe_dump(run_config(7, "26.08", "llama3.1", "70b", "fp8", 64)),
        read=_file("llmb-config_7.yaml", _beside_log),
    ),
]


def _pauses(text: str) -> object:
    number = "120" if len(text) % 2 else text
    return retry_after(text), retry_after(number)


def damaged(sample: Any, chance: random.Random) -> bytes:
    """The sample with some of it changed."""
    if not isinstance(sample, str):
        data = json.loads(json.dumps(sample))
        for _ in range(chance.randrange(1, 4)):
            data = _changed(data, chance)
        text = json.dumps(data)
        return text.encode() if chance.random() < 0.8 else _scrambled(text, chance)
    return _scrambled(sample, chance)


def _changed(data: Any, chance: random.Random) -> Any:
    if chance.random() < 0.15 or not isinstance(data, (dict, list)) or not data:
        return chance.choice(VALUES)
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    key = chance.choice(keys)
    if chance.random() < 0.15:
        del data[key]
    else:
        data[key] = _changed(data[key], chance)
    return data


def _scrambled(text: str, chance: random.Random) -> bytes:
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.randrange(12))
        text = text[:at] + chance.choice(PIECES) + text[end:]
    data = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.15:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.randbytes(chance.randrange(4)) + data[at:]
    return data[: chance.randrange(len(data) + 1)] if chance.random() < 0.1 else data


@pytest.mark.timeout(7200)
@pytest.mark.fault("readers")
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.name))
def test_a_damaged_input_is_an_answer_or_a_fault(
    reader: Reader, tmp_path: Path, home: Path, seen: Callable[..., None]
) -> None:
    (home / ".config" / "llmb").mkdir(parents=True)
    folder = home if reader.name == "secrets" else tmp_path
    chance = random.Random(f"{reader.name} 20261122")
    faults = 0
    for number in range(max(1, COUNT // len(READERS))):
        data = damaged(reader.sample, chance)
        try:
            reader.read(data, folder)
        except (LlmbError, PullError) as error:
            faults += bool(error.message.strip())
        except json.JSONDecodeError:  # the reader is given JSON; who reads bytes is another
            assert reader.read is _runai, data
        except Exception as error:
            error.add_note(f"input {number}: {data!r}")
            raise
    assert faults or reader.name in NEVER_WRONG
    seen(tried=max(1, COUNT // len(READERS)), tracebacks=0)  # the first would have ended the test
