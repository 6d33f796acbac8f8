# SPDX-License-Identifier: Apache-2.0
"""Names that Kubernetes takes, paths as pods see them, and what the configuration asks for."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from llmb.contract.launch import Launch, Program, StagedFile, Stamp, Wrapper
from llmb.contract.schema import ClusterConfig
from llmb.core import yamlfile
from llmb.errors import InputFaults, KeyFaultError, LlmbError
from llmb.plan.read_config import read_config
from llmb_installer.cluster_types import all_types
from llmb_runai.cluster_type import RUNAI
from llmb_runai.request import (
    LONGEST_NAME,
    body,
    from_script,
    in_pod,
    is_on,
    kind_of,
    launch_in_pod,
    to_lines,
    workload_name,
)
from llmb_runai.runai_config import RunaiPvc

PVC = RunaiPvc(name="w", path="/workspace", claim="c", local=Path("/mnt/pvc"))
YAML = """\
cluster_type: runai
gpu_type: h100
runai: {base_url: https://h/api/v1, project: p, pvc: {name: w, path: /w, claim: c}%s}
%s"""


def config(runai: str = "", more: str = "") -> ClusterConfig:
    return read_config(yamlfile.parse(YAML % (runai, more), name="c.yaml"), cluster_types=all_types)


def launch(**changes: Any) -> Launch:
    made: dict[str, Any] = {
        "name": "job",
        "nodes": 1,
        "ranks_per_node": 8,
        "time_limit": 60,
        "program": Program(module="m"),
        "image": "i",
    }
    return Launch(**{**made, **changes})


def stamp(own: str = "k3x9ab2c") -> Stamp:
    return Stamp(id=own, timestamp="1", directory="/w/run")


NAMES = st.text(min_size=1, max_size=80).filter(
    lambda name: "/" not in name and name not in (".", "..")
)


@given(NAMES, st.sampled_from(["k3x9ab2c", "k3x9ab2c-2", "k3x9ab2c-10"]))
@settings(max_examples=100)
def test_any_experiment_has_a_name_that_kubernetes_takes(name: str, own: str) -> None:
    found = workload_name(launch(name=name), stamp(own))
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", found)
    assert len(found) <= LONGEST_NAME
    assert found.endswith(f"-{own}")


def test_attempts_have_names_of_their_own() -> None:
    names = {
        workload_name(launch(name="n" * 80), stamp(own))
        for own in ("k3x9ab2c", "k3x9ab2c-2", "k3x9ab2c-10")
    }
    assert len(names) == 3


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/mnt/pvc/llmb/x", "/workspace/llmb/x"),
        ("/mnt/pvc", "/workspace"),
        ("/mnt/pvc2/x", "/mnt/pvc2/x"),
        ("/home/me", "/home/me"),
    ],
)
def test_a_path_as_pods_see_it(path: str, seen: str) -> None:
    assert in_pod(PVC, path) == seen
    assert is_on(PVC, path) == (path != seen)


def test_a_launch_as_pods_see_it() -> None:
    found = launch_in_pod(
        PVC,
        launch(
            program=Program(script="/mnt/pvc/p.py"),
            args=("--data=/mnt/pvc/d", "/x/mnt/pvc/d"),
            venv="/mnt/pvc/v",
            environment={"PATHS": "/mnt/pvc/a:/mnt/pvc:/mnt/pvc2", "OTHER": "/opt"},
            files=(StagedFile(name="recipe.json", text='{"tokenizer": "/mnt/pvc/t"}'),),
            wrappers=(Wrapper(name="w", argv=("bash", "/mnt/pvc/v")),),
        ),
    )
    assert (found.program.script, found.venv) == ("/workspace/p.py", "/workspace/v")
    assert found.args == ("--data=/workspace/d", "/x/mnt/pvc/d")
    assert found.environment == {"PATHS": "/workspace/a:/workspace:/mnt/pvc2", "OTHER": "/opt"}
    assert found.files[0].text == '{"tokenizer": "/workspace/t"}'
    assert found.wrappers[0].argv == ("bash", "/workspace/v")


def test_one_pod_is_a_training_and_several_are_distributed() -> None:
    assert [kind_of(launch(nodes=nodes)) for nodes in (1, 2)] == ["trainings", "distributed"]
    one, four = (body(launch(nodes=nodes), stamp(), "s", config()) for nodes in (1, 4))
    assert "masterSpecSameAsWorker" not in one
    assert "numWorkers" not in one["spec"]
    assert (four["masterSpecSameAsWorker"], four["spec"]["numWorkers"]) == (True, 3)


def test_fields_with_defaults_are_set_explicitly() -> None:
    spec = body(launch(nodes=2), stamp(), "s", config())["spec"]
    names = (
        "restartPolicy",
        "backoffLimit",
        "cleanPodPolicy",
        "terminateAfterPreemption",
        "distributedFramework",
    )
    assert [spec[name] for name in names] == ["Never", 0, "None", True, "PyTorch"]
    assert spec["compute"] == {"gpuDevicesRequest": 8, "largeShmRequest": True}
    assert spec["autoDeletionTimeAfterCompletionSeconds"] == 7 * 86400
    assert spec["args"] == "/w/run/s"


def test_a_gpu_type_has_a_node_pool_of_its_own() -> None:
    more = "gpu_types: {h200: {like: h100, partition: 'new,old'}}\n"
    place = config(", node_pools: [common]", more)
    pools = [
        body(launch(gpu_type=name), stamp(), "s", place)["spec"]["nodePools"]
        for name in ("h100", "h200")
    ]
    assert pools == [["common"], ["new", "old"]]


def test_further_fields_of_the_spec_go_beside_llmb_s_own() -> None:
    more = ", spec: {security: {runAsUid: 1000}, compute: {cpuCoreRequest: 96}}"
    spec = body(launch(), stamp(), "s", config(more))["spec"]
    assert spec["security"] == {"runAsUid": 1000}
    assert spec["compute"] == {
        "cpuCoreRequest": 96,
        "gpuDevicesRequest": 8,
        "largeShmRequest": True,
    }
    assert spec["restartPolicy"] == "Never"


# What a policy may demand of the fields that llmb sets: a value, that it is left to the policy, or
# one more entry.
@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ("imagePullPolicy: Always", {"imagePullPolicy": "Always"}),
        ("imagePullPolicy: null", {"imagePullPolicy": None}),
        ("terminateAfterPreemption: null", {"terminateAfterPreemption": None}),
        ("cleanPodPolicy: Running", {"cleanPodPolicy": "Running"}),
        (
            "autoDeletionTimeAfterCompletionSeconds: 3600",
            {"autoDeletionTimeAfterCompletionSeconds": 3600},
        ),
        ("workingDir: /tmp", {"workingDir": "/tmp"}),
        ("compute: {largeShmRequest: null}", {"compute": {"gpuDevicesRequest": 8}}),
        ("labels: [{name: team, value: llm}]", {"labels": [{"name": "team", "value": "llm"}]}),
        (
            "environmentVariables: [{name: SITE, value: x}]",
            {"environmentVariables": [{"name": "SITE", "value": "x"}]},
        ),
    ],
)
def test_a_policy_s_demands_can_be_met(spec: str, found: dict[str, Any]) -> None:
    made = body(launch(nodes=2), stamp(), "s", config(f", spec: {{{spec}}}"))["spec"]
    assert {name: made.get(name) for name in found} == found
    assert (made["restartPolicy"], made["backoffLimit"], made["numWorkers"]) == ("Never", 0, 1)


def test_what_is_for_several_pods_alone_is_not_sent_for_one() -> None:
    more = ", spec: {cleanPodPolicy: Running, slotsPerWorker: 8, tty: true}"
    spec = body(launch(), stamp(), "s", config(more))["spec"]
    assert spec["tty"] is True
    assert not {"cleanPodPolicy", "slotsPerWorker"} & spec.keys()


def test_your_volumes_and_variables_follow_those_of_llmb() -> None:
    more = (
        ", secrets: {HF_TOKEN: {name: hub, key: token}}, annotations: {net: ib0}, spec: {storage:"
        " {pvc: [{claimName: data, path: /data, existingPvc: true}], nfs: [{name: n}]},"
        " environmentVariables: [{name: SITE, value: x}], annotations: [{name: team, value: llm}]}"
    )
    spec = body(launch(secrets=("HF_TOKEN",)), stamp(), "s", config(more))["spec"]
    assert [one["claimName"] for one in spec["storage"]["pvc"]] == ["c", "data"]
    assert spec["storage"]["nfs"] == [{"name": "n"}]
    assert [one["name"] for one in spec["environmentVariables"]] == ["HF_TOKEN", "SITE"]
    assert [one["name"] for one in spec["annotations"]] == ["net", "team"]


def test_jobs_for_cpus_ask_for_no_gpu() -> None:
    compute = body(launch(gpu_type="cpu"), stamp(), "s", config())["spec"]["compute"]
    assert compute == {"largeShmRequest": True}


def test_the_request_is_read_back_from_the_script() -> None:
    content = {"name": "a", "spec": {"args": "a\nb '\"` $x ü"}}
    script = "\n".join(["#!/bin/bash", *to_lines("distributed", content), "", "echo"])
    assert from_script(script) == ("distributed", content)
    with pytest.raises(LlmbError) as raised:
        from_script("#!/bin/bash\necho\n")
    assert raised.value.code == "request-missing"


@pytest.mark.parametrize(
    ("runai", "fault"),
    [
        (", secrets: {HF_TOKEN: {name: hub}}", "'key' is missing"),
        (", secret: {}", "'secret' is not a key"),
        (", keep_days: 0", "must be at least 1"),
        (", spec: {restartPolicy: Always}", "restartPolicy is set by llmb"),
        (", spec: {compute: 8}", "must be a mapping"),
        (
            ", spec: {compute: {gpuDevicesRequest: 1}}",
            "c.yaml:3: .*gpuDevicesRequest is set by llmb",
        ),
        (", spec: {storage: null}", "must be a mapping"),
        (", spec: {storage: {pvc: null}}", "must be a list"),
        (", spec: {environmentVariables: {A: b}}", "must be a list"),
        (", spec: {environmentVariables: [A]}", "must be a mapping with a name"),
        (", spec: {environmentVariables: [{name: HF_TOKEN, value: hf_x}]}", "HF_TOKEN is a secret"),
        (
            ", secrets: {A_KEY: {name: n, key: k}}, spec: {environmentVariables: [{name: A_KEY}]}",
            "A_KEY is in",
        ),
        (
            ", spec: {environmentVariables: [{name: A, value: b}, {name: A, value: c}]}",
            "A is named above already",
        ),
        (
            ", secrets: {HF_TOKEN: {name: My_Hub, key: token}}",
            "c.yaml:3: .*accepts no secret named 'My_Hub'",
        ),
        (", secrets: {HF_TOKEN: {name: hub-, key: token}}", "accepts no secret named 'hub-'"),
        (", secrets: {HF_TOKEN: {name: a.b, key: token}}", "accepts no secret named 'a.b'"),
        (", secrets: {HF_TOKEN: {name: hub, key: ''}}", "is empty"),
    ],
)
def test_faults_of_the_configuration(runai: str, fault: str) -> None:
    with pytest.raises(InputFaults, match=fault):
        config(runai)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "base_url: http://h/api/v1, project: p, pvc: {name: w, path: /w, claim: c}",
            "not the address of an API",
        ),
        (
            "base_url: u, project: p, pvc: {name: w, path: /w, claim: c}",
            "not the address of an API",
        ),
        (
            "base_url: https://h, project: p, pvc: {name: w, path: w, claim: c}",
            "'w' is not a full path",
        ),
        (
            "base_url: https://h, project: p, pvc: {name: w, path: /w, claim: c, local: x}",
            "'x' is not a full path",
        ),
    ],
)
def test_addresses_and_paths_are_checked(text: str, fault: str) -> None:
    with pytest.raises(InputFaults, match=fault):
        read_config(
            yamlfile.parse(
                f"cluster_type: runai\ngpu_type: h100\nrunai: {{{text}}}\n", name="c.yaml"
            ),
            cluster_types=all_types,
        )


@pytest.mark.parametrize(
    ("claim", "is_valid"),
    [  # the rules of RFC 1123 subdomains, as Kubernetes documents names
        *((name, True) for name in ("work-claim", "1data", "a", "team.work-1", "a" * 63)),
        *((name, False) for name in ("Work_Claim", "Work", "-a", "a-", "a..b", ".a", "a.-b", "")),
        ("a" * 64, False),  # RFC 1123 allows it, and Run:ai's API does not
    ],
)
def test_a_claim_has_a_name_that_kubernetes_accepts(claim: str, is_valid: bool) -> None:
    (question,) = [question for question in RUNAI.questions if question.key == "pvc"]
    assert question.parse is not None
    if is_valid:
        assert question.parse(f"w:/w:{claim}")["claim"] == claim
        assert RunaiPvc(name="w", path="/w", claim=claim).claim == claim
        return
    with pytest.raises(ValueError, match=r"claim|three parts"):
        question.parse(f"w:/w:{claim}")
    with pytest.raises(KeyFaultError) as caught:
        RunaiPvc(name="w", path="/w", claim=claim)
    assert caught.value.path == ("claim",)
