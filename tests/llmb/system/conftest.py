# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the tests of access to the machine."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from llmb.errors import LlmbError

Fails = Callable[[str, object], AbstractContextManager[pytest.ExceptionInfo[LlmbError]]]


@pytest.fixture
def fails() -> Fails:
    """Expects an LlmbError with a code and a key, which may be a path."""

    @contextlib.contextmanager
    def expect(code: str, key: object) -> Iterator[pytest.ExceptionInfo[LlmbError]]:
        with pytest.raises(LlmbError) as caught:
            yield caught
        assert (caught.value.code, caught.value.key) == (code, str(key))

    return expect
