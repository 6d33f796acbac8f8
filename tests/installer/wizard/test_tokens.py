# SPDX-License-Identifier: Apache-2.0
"""Tests of the secrets: only missing ones are asked for, and each once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llmb.builtin.plugins import builtin_plugins
from llmb.core import secrets
from llmb.core.yamlfile import parse
from llmb.plugins.loader import load_plugins
from llmb_installer.wizard import ask_secrets, prompts
from llmb_installer.wizard.ask_secrets import Tokens

SLURM = "cluster_type: slurm\ninstall: /x\ngpu_type: h100\nnode_architecture: x86_64\n"
PVC = "pvc: {name: n, path: /p, claim: c}"
RUNAI = (
    "cluster_type: runai\ninstall: /x\ngpu_type: h100\nrunai: {base_url: https://h/api/v1,"
    f" project: p, {PVC}}}\n"
)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts, instead of a terminal; the answer is ``value``, and empty for OTHER_KEY."""
    asked: list[str] = []

    def hidden(text: str, *, back: bool) -> str:
        asked.append(text)
        return "" if "OTHER_KEY" in text else "value"

    monkeypatch.setattr(prompts, "ask_hidden", hidden)
    return asked


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (SLURM, {}),
        (SLURM + "tokenizer: hub\nworkloads: [llama3.1]\n", {"HF_TOKEN": ["pretrain_llama3.1"]}),
        (RUNAI, {"APP_SECRET": ["Run:ai"]}),
        (SLURM.replace("h100", "h1000"), {}),
    ],
    ids=["nothing gated", "a gated tokenizer", "runai", "answers that the plan refuses"],
)
def test_the_secrets_that_answers_need(text: str, names: dict[str, Sequence[str]]) -> None:
    assert (
        ask_secrets.find_needed_secrets(parse(text, name="a.yaml"), load_plugins(builtin_plugins()))
        == names
    )


def test_only_missing_secrets_are_asked_for(home: Path, typed: list[str]) -> None:
    secrets.save({"HF_TOKEN": "kept"})
    names: dict[str, Any] = {
        "HF_TOKEN": ["a"],
        "APP_SECRET": ["Run:ai"],
        "NGC_API_KEY": ["a", "b"],
        "OTHER_KEY": ["c"],
    }
    found = ask_secrets.ask_secrets(names, {"NGC_API_KEY": "x"}, Tokens())
    assert [text.partition(",")[0] for text in typed] == ["APP_SECRET", "OTHER_KEY"]
    assert isinstance(found, Tokens)
    assert found.known == {
        "HF_TOKEN": "in ~/.config/llmb/secrets",
        "NGC_API_KEY": "from the environment",
    }
    assert (found.typed, found.skipped) == ({"APP_SECRET": "value"}, ("OTHER_KEY",))
    again = ask_secrets.ask_secrets(names, {"NGC_API_KEY": "x"}, found)
    assert len(typed) == 2, "a second round asks for nothing that was answered or skipped"
    assert again == found
    assert secrets.names() == ["HF_TOKEN"], "nothing is saved before the plan is confirmed"
