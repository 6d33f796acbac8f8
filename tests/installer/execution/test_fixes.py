# SPDX-License-Identifier: Apache-2.0
"""Tests of what an error shows of a failed program's output, and of its fix."""

import pytest

from llmb_installer.execution.runner import TAIL, end_of, fix_for

NOTICE = """\
  /cache/setuptools/dist.py:759: SetuptoolsDeprecationWarning: License classifiers are deprecated.
  !!

          ****************************************
          Please consider removing the following classifiers:

          License :: OSI Approved :: BSD License
          ****************************************

  !!
    self._finalize_license_expression()
"""
UV = f"""\
  × Failed to build `mamba-ssm==2.2.4`
  ├─▶ The build backend returned an error
  ╰─▶ Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)

      [stderr]
{NOTICE}
      error: <urlopen error [Errno -2] Name or service not known>
"""
PIP = f"""\
Building wheels for collected packages: causal-conv1d
  Building wheel for causal-conv1d (setup.py): started
{NOTICE * 3}
  a line
  another
  error: <urlopen error [Errno -2] Name or service not known>
{chr(10).join(map("  line {}".format, range(TAIL)))}
"""


@pytest.mark.parametrize(("output", "package"), [(UV, "mamba-ssm==2.2.4"), (PIP, "causal-conv1d")])
def test_a_build_names_its_package_and_no_warning(output: str, package: str) -> None:
    shown = end_of(output)
    assert package in shown
    assert "License" not in shown
    assert "!!" not in shown
    assert len(shown.splitlines()) <= TAIL + 1


def test_the_end_is_headed_by_a_package_that_it_no_longer_names() -> None:
    assert "causal-conv1d" in end_of(PIP).splitlines()[0]


def test_a_build_without_a_network() -> None:
    assert "urlopen error" in end_of(UV)
    assert "HTTPS_PROXY" in fix_for(end_of(UV))


def test_only_the_last_attempt_to_connect_is_shown() -> None:
    trials = "".join(f"WARNING: Retrying (Retry(total={left}))\n" for left in (2, 1, 0))
    shown = [line.strip() for line in end_of(f"{trials}ERROR: no\n").splitlines()]
    assert shown == ["WARNING: Retrying (Retry(total=0))", "ERROR: no"]
