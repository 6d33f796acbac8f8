# SPDX-License-Identifier: Apache-2.0
"""Tests how a dry run words the variables of a job."""

import shlex

from llmb.cli.submit.preview import _env_in_words


def test_variables_are_quoted_shortened_and_never_secret() -> None:
    shown = _env_in_words({"A": "a b", "E": "", "HF_TOKEN": "hf_abc"})
    assert shlex.split(shown) == ["A=a b", "E=", "HF_TOKEN=***"]
    assert len(_env_in_words({"A": "x" * 500})) == 62
    assert _env_in_words({"A": "x" * 500}, whole=True) == "A=" + "x" * 500
