# SPDX-License-Identifier: Apache-2.0
"""Tests of what the installer adds to sqshpull: secrets, locks, permissions, errors and hints."""

import dataclasses
import inspect
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sqshpull.errors
from llmb.core import locks
from llmb.core.shell import StoppedError
from llmb.errors import LlmbError, UsageError
from llmb_installer.answers.schema import ImageAnswers
from llmb_installer.execution.runner import Runner
from llmb_installer.images.adapter import build_image, llmb_error, make_user
from llmb_installer.images.image_step import ImageStep
from llmb_installer.step import BuildContext, Lines
from llmb_testing.real_registry import RealRegistry
from llmb_testing.sample_images import Layer, SampleImage, file, make_index
from sqshpull import PullError, PullInputError, PullStoppedError
from sqshpull.credentials import find_credentials
from sqshpull.settings import PullSettings


@pytest.fixture
def context(tmp_path: Path, home: Path) -> BuildContext:
    return BuildContext(
        install=tmp_path,
        environ=os.environ,
        home=home,
        log=tmp_path / "log",
        progress=Lines(),
        runner=Runner(),
    )


@pytest.fixture(scope="module")
def reference(registry: RealRegistry) -> str:
    image = SampleImage(layers=(Layer(entries=(file("f", b"1"),)),))
    registry.push("public/adapter", "1.0", make_index([image]))
    return registry.reference("public/adapter", "1.0")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(PullError, LlmbError), (PullInputError, UsageError), (PullStoppedError, StoppedError)],
)
def test_an_error_keeps_all_that_it_says(raised: type[PullError], kind: type[LlmbError]) -> None:
    found = llmb_error(raised("m", hint="h", code="c", key="k", value=7))
    assert type(found) is kind
    if kind is not StoppedError:
        assert (found.message, found.hint, found.code) == ("m", "h", "c")
        assert (found.key, found.value) == ("k", 7)


def test_hints_name_the_settings_of_the_answers() -> None:
    """No option of the command sqshpull reaches a user of llmb-install, but those it has too."""
    texts = inspect.getmembers(sqshpull.errors, lambda member: isinstance(member, str))
    names = {name: text for name, text in texts if name.isupper()}
    assert len(names) == 5
    shown = {name: llmb_error(PullError("m", hint=text)).hint for name, text in names.items()}
    assert "insecure_registries" in str(shown["ALLOW_HTTP"])
    assert "ca_bundle" in str(shown["CA_BUNDLE"])
    assert "registry_mirrors" in str(shown["MIRROR"])
    assert "image_folder" in str(shown["OTHER_FILE"])
    assert "--cache" in str(shown["OTHER_CACHE"])


def test_every_answer_is_a_setting_of_the_pull() -> None:
    answers = {field.name: field.default for field in dataclasses.fields(ImageAnswers)}
    settings = {field.name: field.default for field in dataclasses.fields(PullSettings)}
    assert {name: settings[name] for name in answers} == answers


def test_the_file_of_secrets(home: Path) -> None:
    path = home / ".config" / "llmb" / "secrets"
    path.parent.mkdir(parents=True)
    path.write_text("NGC_API_KEY=k\nREGISTRY_GHCR_IO_USER=me\nREGISTRY_GHCR_IO_PASSWORD=p\n")
    path.chmod(0o600)
    user = make_user({}, home)
    assert str(find_credentials("nvcr.io", user)) == (
        "'$oauthtoken' from NGC_API_KEY in ~/.config/llmb/secrets"
    )
    found = find_credentials("ghcr.io", user)
    assert found is not None
    assert (found.user, found.secret) == ("me", "p")
    assert found.source == "REGISTRY_GHCR_IO_PASSWORD in ~/.config/llmb/secrets"


def test_the_record_has_the_mode_of_the_install_directory(
    context: BuildContext, reference: str, tmp_path: Path
) -> None:
    (tmp_path / "cluster_config.yaml").touch()
    tmp_path.chmod(0o775)
    before = os.umask(0o077)
    try:
        build_image(reference, "x86_64", tmp_path / "x.sqsh", PullSettings(), context)
    finally:
        os.umask(before)
    assert (tmp_path / "x.sqsh.json").stat().st_mode & 0o777 == 0o664


def test_an_image_that_llmb_locks_is_waited_for(
    image_argv: Callable[..., list[str]], context: BuildContext, reference: str, tmp_path: Path
) -> None:
    """Also by another host, which llmb's locks reach."""
    target = tmp_path / "x.sqsh"
    build_image(reference, "x86_64", target, PullSettings(), context)
    kept = [path.rename(tmp_path / f"kept{path.suffix}") for path in (target, record_of(target))]
    with locks.hold(tmp_path, ".x.sqsh"):
        waiting = subprocess.Popen(
            image_argv(reference, "-o", target, "--arch", "x86_64"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stderr is not None
        assert f"process {os.getpid()}" in waiting.stderr.readline()
        for path, name in zip(kept[::-1], (record_of(target), target), strict=True):
            shutil.copy2(path, name)
    out, err = waiting.communicate()
    assert (waiting.returncode, err) == (0, "")
    assert out.startswith(f"{target}: ")


def record_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.json")


def test_a_job_of_srun_has_a_name(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[PullSettings] = []

    def keep(*arguments: Any) -> None:
        settings.append(arguments[3])
        raise LlmbError("stop here")

    monkeypatch.setattr("llmb_installer.images.image_step.build_image", keep)
    step = ImageStep(
        reference="a/b:1", architecture="x86_64", target=tmp_path / "x.sqsh", srun=("--account=us",)
    )
    with pytest.raises(LlmbError):
        step.build(context)
    (given,) = settings
    assert given.via == "srun"
    assert given.srun_args == ("--job-name=llmb-image", "--account=us")


def test_a_folder_that_cannot_be_created(
    image_command: Callable[..., subprocess.CompletedProcess[str]], reference: str, tmp_path: Path
) -> None:
    """The hint names the answers' key."""
    (tmp_path / "file").touch()
    done = image_command(reference, "-o", tmp_path / "file" / "x.sqsh", "--arch", "x86_64")
    assert done.returncode == 1
    assert "image_folder in the answers" in done.stderr
