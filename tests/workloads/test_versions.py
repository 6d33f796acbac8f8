# SPDX-License-Identifier: Apache-2.0
"""A library that is missing or too old is named before it is imported."""

from importlib.metadata import PackageNotFoundError

import pytest

from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_pretrain import check_versions


def test_what_is_new_enough_will_do() -> None:
    check_versions({"torch": "2.13.0+cpu", "transformers": "5.10.0.dev0"}.__getitem__)


def test_what_is_too_old_is_refused() -> None:
    found = {"torch": "2.13.0", "transformers": "5.3.0"}
    with pytest.raises(RefusedError, match=r"^transformers 5\.3\.0: is too old; install transformers 5\.6 or newer$"):
        check_versions(found.__getitem__)


def test_what_is_missing_is_refused() -> None:
    def version_of(name: str) -> str:
        raise PackageNotFoundError(name)

    with pytest.raises(RefusedError, match=r"^torch: is not installed; install torch 2\.4 or newer$"):
        check_versions(version_of)
