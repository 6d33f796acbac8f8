# SPDX-License-Identifier: Apache-2.0
"""Tests that a missing or too old library is named before it is imported."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_pretrain import check_versions


def test_new_libraries_are_accepted() -> None:
    check_versions({"torch": "2.13.0+cpu", "transformers": "5.10.0.dev0"}.__getitem__)


def test_an_old_library_is_refused(wording: Callable[..., None]) -> None:
    found = {"torch": "2.13.0", "transformers": "5.3.0"}
    with pytest.raises(RefusedError) as refused:
        check_versions(found.__getitem__)
    assert refused.value.place == "transformers 5.3.0"
    wording("torch_pretrain", str(refused.value))


def test_a_missing_library_is_refused(wording: Callable[..., None]) -> None:
    def version_of(name: str) -> str:
        raise PackageNotFoundError(name)

    with pytest.raises(RefusedError) as refused:
        check_versions(version_of)
    assert refused.value.place == "torch"
    wording("torch_pretrain", str(refused.value))
