# SPDX-License-Identifier: Apache-2.0
"""The volume that pods and this machine share: a path here as pods see it. Pure."""

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

from llmb.config.runai import RunaiPvc
from llmb.runs.launch import Launch, Program, StagedFile, Wrapper


def is_on(pvc: RunaiPvc, path: str | Path) -> bool:
    """Whether ``path``, as this machine names it, lies on the volume."""
    return PurePosixPath(path).is_relative_to(PurePosixPath(pvc.here))


def in_pod(pvc: RunaiPvc, path: str | Path) -> str:
    """``path`` as pods see it; one that is not on the volume stays."""
    if not is_on(pvc, path):
        return str(path)
    return str(PurePosixPath(pvc.path) / PurePosixPath(path).relative_to(PurePosixPath(pvc.here)))


def launch_in_pod(pvc: RunaiPvc, launch: Launch) -> Launch:
    """``launch`` with every mention of a folder of the volume as pods see it, within its files and arguments too."""
    if str(pvc.here) == pvc.path:
        return launch
    # A whole path, and not the middle of a longer one.
    here = re.compile(rf"(?<![\w./-]){re.escape(str(pvc.here).rstrip('/'))}(?![\w.-])")

    def said(text: str) -> str:
        return here.sub(lambda _: pvc.path.rstrip("/"), text)

    return replace(
        launch,
        program=launch.program if launch.program.script is None else Program(script=said(launch.program.script)),
        args=tuple(map(said, launch.args)),
        venv=said(launch.venv) if launch.venv is not None else None,
        environment={name: said(value) for name, value in launch.environment.items()},
        wrappers=tuple(Wrapper(name=one.name, argv=tuple(map(said, one.argv))) for one in launch.wrappers),
        files=tuple(StagedFile(name=one.name, text=said(one.text)) for one in launch.files),
    )
