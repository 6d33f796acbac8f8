# SPDX-License-Identifier: Apache-2.0
"""A step that keeps or repairs the environment in use, or builds another and switches to it."""

import platform
import re
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

from llmb.core import files, permissions, yamlfile
from llmb.core.values import dataclass
from llmb.errors import LlmbError
from llmb_installer.step import BuildContext, Commands, Facts, StepCost
from llmb_installer.venv import contents, lock, pipconf, repair, tools
from llmb_installer.venv.lock import VenvSpec
from llmb_installer.venv.pip_uv import Packages, Pip, Uv

# Packages whose versions a summary shows.
SHOWN = ("torch", "transformers", "nemo_toolkit", "nemo-toolkit", "megatron-core")


@dataclass(frozen=True, slots=True, kw_only=True)
class VenvStep(VenvSpec):
    """Make, repair or keep the environment."""

    def is_whole(self, facts: Facts) -> bool:
        """Return True if no file of a package is missing; contents are not read."""
        faults = contents.faults(self.folder, facts, deep=False)
        return not any(fault.code == contents.DAMAGED for fault in faults)

    def check(self, context: BuildContext) -> StepCost:
        """Check for the tool, the Python and the wheelhouse, and estimate the packages' size.

        The Python of a node is only checked there, when the step runs. Raises LlmbError.
        """
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise LlmbError(
                f"'{self.name}' is not a folder's name", hint="report it to the plugin's author"
            )
        contents.require_ours(self.folder)
        if self.wheelhouse is not None and not self.wheelhouse.is_dir():
            message = f"the wheelhouse {self.wheelhouse} is not a folder"
            raise LlmbError(
                message, hint="pip download -d DIR fills one", code="wheelhouse-missing"
            )
        is_here, own_architecture = context.runner.where == "here", platform.machine()
        if is_here and self.architecture != own_architecture:
            message = (
                f"the nodes are {self.architecture} and this machine is {own_architecture}: it"
                " cannot build their environment"
            )
            fix = f"install on a machine that is {self.architecture}"
            hint = f"on Slurm set 'method: srun' in the answers; otherwise {fix}"
            raise LlmbError(message, hint=hint, code="architecture-differs", value=own_architecture)
        if not is_here:
            program = context.runner.where.split()[0]
            if shutil.which(program, path=context.environ.get("PATH")) is None:
                hint = (
                    "run llmb-install on a login node of the cluster, or set 'method: here' in the"
                    " answers"
                )
                raise LlmbError(
                    f"{program} is not on PATH", hint=hint, code="no-slurm", key=program
                )
        chosen_tools = tools.choose(self.tool, context.environ, is_here=is_here)
        if chosen_tools.maker == "conda":
            if self.python is not None and not tools.is_version(self.python):
                message = f"conda needs a version of Python, not '{self.python}'"
                raise LlmbError(message, hint="set 'python: \"3.12\"' in the answers")
        elif is_here:
            commands = Commands(
                context=context, environ=pipconf.for_uv(context.environ, offline=True)
            )
            is_fetched = (
                self.fetch_python and chosen_tools.maker == "uv" and self.python is not None
            )
            python = _find(self, commands, is_fetched=is_fetched)
            if python is not None and chosen_tools.maker == "venv" and not python.has_venv:
                raise tools.no_venv(python)
        return StepCost() if repair.is_likely(self, context.install) else estimate(self)

    def build(self, context: BuildContext) -> Facts:
        """Keep, repair or build the environment, and return its facts for the record.

        The output of programs goes to the log. Raises LlmbError with its end. The environment in
        use is then unchanged.
        """
        link = self.folder
        contents.sweep(link.parent, self.name)
        facts = _keep(self, context)
        if facts is None:
            facts = _build_new(self, context)
        contents.sweep(link.parent, self.name)
        return facts


is_there, verify = contents.is_there, contents.verify


def remove(name: str, facts: Facts, install: Path) -> None:
    """Delete the link, then every build of this name."""
    link = contents.folder_of(name, install)
    if link.is_symlink():
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    contents.sweep(link.parent, name)


def describe(name: str, facts: Facts) -> str:
    packages = facts.get("packages", {})
    names = [f"{package} {packages[package]}" for package in SHOWN if package in packages]
    count = f"{len(packages)} package{'s' * (len(packages) != 1)}"
    return ", ".join([f"Python {facts.get('python')}", *names, count])


def _build_new(step: VenvSpec, context: BuildContext) -> Facts:
    folder = contents.new_folder(step.folder)
    files.make_folder(folder.parent)
    files.write_text(
        context.log, f"{step.key}: {', '.join(step.need.requirements)} ({context.runner.where})\n"
    )
    try:
        facts, text = _fill(step, folder, context)
        files.write_json(folder / repair.FACTS, {"digest": step.digest, "facts": facts})
        files.write_text(lock.path_of(step, context.install), text)
        permissions.share_tree(folder)
        contents.switch(step.folder, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return facts


def _keep(step: VenvSpec, context: BuildContext) -> Facts | None:
    """Return the facts of the environment in use after any repair, None to build it anew."""
    facts = repair.facts_of(step, context.install)
    if facts is None:
        return None
    faults = contents.verify(step.name, facts, context.install, deep=True)
    if any(fault.code != contents.DAMAGED for fault in faults):
        return None
    if faults:
        files.write_text(context.log, "".join(f"{step.key}: {fault.message}\n" for fault in faults))
        context.progress.say(f"reinstalls {', '.join(fault.key for fault in faults)}")
        # programs name the folder of the build, not the link
        folder = step.folder.with_name(str(facts["folder"]))
        scratch = contents.new_folder(step.folder)
        try:
            _, packages = _tools(step, folder, context, scratch=scratch)
            if isinstance(packages, Pip) and "pip" not in facts["packages"]:
                return None  # made by uv, which is not installed any more
            prefixed = replace(packages, prefix=scratch / "prefix")
            facts = repair.repair(step, facts, prefixed, [fault.key for fault in faults])
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if facts is None or contents.faults(folder, facts, deep=False):
            return None
    files.write_json(step.folder / repair.FACTS, {"digest": step.digest, "facts": facts})
    return facts


def _tools(
    step: VenvSpec, folder: Path, context: BuildContext, *, scratch: Path
) -> tuple[tools.Tools, Packages]:
    """Return the tools for ``step``, and the one of them that installs packages into ``folder``."""
    chosen_tools = tools.choose(step.tool, context.environ, is_here=context.runner.where == "here")
    offline = step.wheelhouse is not None
    if chosen_tools.uv is not None and chosen_tools.maker != "venv":
        commands = Commands(
            context=context, environ=pipconf.for_uv(context.environ, offline=offline)
        )
        return chosen_tools, Uv(
            uv=chosen_tools.uv, folder=folder, commands=commands, scratch=scratch
        )
    commands = Commands(context=context, environ=pipconf.for_pip(context.environ, offline=offline))
    return chosen_tools, Pip(folder=folder, commands=commands, scratch=scratch)


def _fill(step: VenvSpec, folder: Path, context: BuildContext) -> tuple[Facts, str]:
    """Make the environment in ``folder``. Return its facts, and the text of its lock file."""
    chosen_tools, packages = _tools(step, folder, context, scratch=folder)
    context.progress.say("makes the environment")
    version = _make(step, folder, chosen_tools, context)
    chosen_lock = lock.find(step, context.install, version)
    if chosen_lock is None:
        context.progress.say("chooses packages")
        chosen_lock = packages.resolve(step, lock.made_for(step, version))
    context.progress.say(f"installs {len(chosen_lock.names)} packages")
    packages.install(step, chosen_lock)
    if step.need.from_source:
        context.progress.say(f"builds {', '.join(step.need.from_source)}")
        packages.build(step, step.need.from_source)
    facts = {
        "folder": folder.name,
        "python": version,
        "made_by": chosen_tools.maker,
        "where": context.runner.where,
        **contents.inventory(folder),
    }
    if chosen_lock.failed_index is not None:
        facts["note"] = (
            f"{chosen_lock.failed_index} gave no torch: it comes from pip's own indexes, with"
            " CUDA's libraries"
        )
    text = lock.to_text(chosen_lock, step.name, f"Python {version} on {step.architecture}")
    return facts, text


def _make(step: VenvSpec, folder: Path, chosen_tools: tools.Tools, context: BuildContext) -> str:
    """Make an environment without packages, and return its Python's version ``X.Y``."""
    offline = step.wheelhouse is not None
    for_pip = Commands(context=context, environ=pipconf.for_pip(context.environ, offline=offline))
    for_uv = Commands(context=context, environ=pipconf.for_uv(context.environ, offline=offline))
    if chosen_tools.maker == "conda":
        assert chosen_tools.program is not None
        version = step.python or tools.own_version()
        argv = [
            chosen_tools.program,
            "create",
            "--yes",
            "--quiet",
            "--prefix",
            str(folder),
            f"python={version}",
            "pip",
        ]
        for_pip.run("conda create", argv)
        version_argv = [
            str(folder / "bin" / "python"),
            "-I",
            "-c",
            "import sys; print('%d.%d' % sys.version_info[:2])",
        ]
        return for_pip.read(version_argv).out.strip()
    python = tools.find(step.python, for_uv, fetch=step.fetch_python)
    if chosen_tools.maker == "uv":
        assert chosen_tools.program is not None
        for_uv.run(
            "uv venv",
            [chosen_tools.program, "venv", "--quiet", "--python", python.program, str(folder)],
        )
    else:
        if not python.has_venv:
            raise tools.no_venv(python)
        for_pip.run("python -m venv", [python.program, "-I", "-m", "venv", str(folder)])
    return python.version


def _find(step: VenvSpec, commands: Commands, *, is_fetched: bool) -> tools.Python | None:
    """Return the Python, None if it will be downloaded."""
    try:
        return tools.find(step.python, commands, fetch=False)
    except LlmbError:
        if is_fetched:
            return None
        raise


def estimate(step: VenvSpec) -> StepCost:
    """Return a lower bound of bytes to fetch and on disk.

    Unknown without a package that sizes.yaml lists.
    """
    if step.wheelhouse is not None:
        return StepCost(fetch=0, disk=None)
    names = [lock.package_of(line) for line in step.need.requirements]
    table = _table()
    if "torch" in names and step.torch.cpu_index is not None:
        names[names.index("torch")] = "torch-cpu"
    sizes = [table[name] for name in names if name in table]
    if not sizes:
        return StepCost()
    fetch, disk = (sum(size[key] for size in sizes) * 1_000_000 for key in ("fetch_mb", "disk_mb"))
    return StepCost(fetch=fetch, disk=disk, rough=True)


@cache
def _table() -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = yamlfile.load_packaged(
        Path(__file__).with_name("sizes.yaml")
    ).data
    return table
