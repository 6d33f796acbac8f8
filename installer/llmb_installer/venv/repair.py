# SPDX-License-Identifier: Apache-2.0
"""Repairs the environment in use: reinstalls damaged packages without disturbing its jobs.

A damaged package is installed at its locked version into a folder of its own. Each file of it that
is missing or different in the environment is then replaced by an atomic rename. So there is no
moment at which a module is missing, as there is in an uninstall and install, and a process that has
mapped a library keeps the old file.
"""

import filecmp
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from llmb.core import files, permissions, shell
from llmb.errors import LlmbError
from llmb_installer import record
from llmb_installer.execution.runner import NoNodeError
from llmb_installer.step import Facts
from llmb_installer.venv import contents, lock
from llmb_installer.venv.lock import VenvSpec
from llmb_installer.venv.pip_uv import Packages, Pip

# in the environment: what it is, for an installer that was killed before it recorded it
FACTS = "llmb.json"
# the folder of the wheels that Python brings: the system's (Debian), else ensurepip's own
_BUNDLED = (
    "import ensurepip, os, sysconfig; print(sysconfig.get_config_var('WHEEL_PKG_DIR') or"
    " os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'))"
)


def facts_of(step: VenvSpec, install: Path) -> Facts | None:
    """Return the facts of the environment in use, None if ``step`` would build another one."""
    try:
        note = files.read_json(step.folder / FACTS)
    except LlmbError:
        note = None
    if not isinstance(note, dict):
        step_record = record.load(install).steps.get(step.key)
        return (
            step_record.facts
            if step_record is not None and step_record.digest == step.digest
            else None
        )
    facts: Facts = note["facts"]
    return facts if note.get("digest") == step.digest else None


def is_likely(step: VenvSpec, install: Path) -> bool:
    """Return True if the environment at most needs reinstalled packages; reads no contents."""
    facts = facts_of(step, install)
    if facts is None:
        return False
    return all(
        fault.code == contents.DAMAGED
        for fault in contents.verify(step.name, facts, install, deep=False)
    )


def repair(
    step: VenvSpec, facts: Facts, packages: Packages, names: Collection[str]
) -> Facts | None:
    """Reinstall the packages ``names`` of the environment in use, and return its facts.

    None if it must be built anew. ``packages`` installs into a prefix. Raises LlmbError.
    """
    prefix, folder = packages.prefix, packages.folder
    assert prefix is not None, "a repair never installs into the environment itself"
    install = step.folder.parent.parent
    locked = lock.find(step, install, facts["python"])
    if locked is None or not _runs(packages):
        return None
    sources = [line for line in step.need.from_source if lock.package_of(line) in names]
    bundled = {*names} - locked.names - {lock.package_of(line) for line in sources}
    if bundled:
        bundled_pip = _bundled_pip(packages)
        if bundled_pip is None or not _install_bundled(step, facts, bundled_pip, bundled):
            return None
        if isinstance(packages, Pip):  # the environment's own may be what is damaged
            packages = replace(packages, program=bundled_pip.program)
    packages.install(step, locked.only(names))
    if sources:
        packages.build(step, sources)
    permissions.share_tree(prefix)
    staged = {
        name: package
        for base in contents.site_packages(prefix)
        for name, package in contents.packages_in(base).items()
    }
    if not staged.keys() >= {*names}:
        return None
    for name in names:
        _replace_files(staged[name].info, folder)
    return {**facts, **contents.inventory(folder)}


def _runs(packages: Packages) -> bool:
    """Return True if the environment's Python starts."""
    try:
        return (
            packages.commands.read([packages.python, "-I", "-c", "import encodings, site"]).code
            == 0
        )
    except NoNodeError:
        raise
    except LlmbError:
        return False


def _bundled_pip(packages: Packages) -> Pip | None:
    """Return the pip that Python brings as a wheel, which runs without being installed.

    None without one.
    """
    folder = packages.commands.read([packages.python, "-I", "-c", _BUNDLED]).out.strip()
    wheel = next(Path(folder or "/nowhere").glob("pip-*.whl"), None)
    if wheel is None:
        return None
    return Pip(
        folder=packages.folder,
        commands=packages.commands,
        scratch=packages.scratch,
        prefix=packages.prefix,
        program=(f"{wheel}/pip",),
    )


def _install_bundled(step: VenvSpec, facts: Facts, pip: Pip, names: Collection[str]) -> bool:
    """Install packages that came with the environment, such as pip, from Python's wheels.

    Returns False if it cannot.
    """
    versions = {lock.normalized(name): version for name, version in facts["packages"].items()}
    requirements = tuple(f"{name}=={versions[name]}" for name in sorted(names))
    try:
        wheels = Path(pip.program[0]).parent.parent
        pip.install(
            replace(step, wheelhouse=wheels), lock.Lock(made_for="", hashed=(), plain=requirements)
        )
    except shell.StoppedError:
        raise
    except LlmbError:  # Python has been updated since
        return False
    return True


def _replace_files(info: Path, folder: Path) -> None:
    """Put the package's files into ``folder`` that are missing or different there.

    ``info`` is its folder of metadata.
    """
    (site,) = contents.site_packages(folder)
    staged_rows = contents.rows(info / "RECORD")
    for row, _ in staged_rows:
        source, target = info.parent / row, site / row
        if row.startswith("../"):  # a program: however deep the folder of packages is
            target = folder / re.sub(r"^(\.\./)+", "", row)
        is_record = target.name == "RECORD" and target.parent.name == info.name
        if is_record or (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            continue
        files.make_folder(target.parent)
        source.replace(target)
    old_record = site / info.name / "RECORD"
    # written last: until then the package is still damaged
    if sorted(staged_rows) != sorted(contents.rows(old_record)):
        (info / "RECORD").replace(old_record)
