# SPDX-License-Identifier: Apache-2.0
"""A step that checks out a git repository at one commit."""

import hashlib
import re
import shutil
from pathlib import Path
from typing import ClassVar

from llmb.contract import needs
from llmb.core import files, permissions, shell
from llmb.core.values import dataclass
from llmb.errors import Fault, LlmbError
from llmb_installer.step import (
    BuildContext,
    Commands,
    Facts,
    InstallStep,
    StepCost,
    remove_folder,
    sha256_of,
)

MANIFEST = "llmb-files.json"  # in .git: the files of the checkout, to verify them without git
_SHORT = 12  # hex digits of a commit in a folder's name


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoStep(InstallStep):
    """Check the commit of ``need`` out below ``folder``."""

    kind: ClassVar[str] = "repo"
    need: needs.Repo
    folder: Path

    @property
    def name(self) -> str:
        return self.need.name

    @property
    def title(self) -> str:
        return f"Repository {self.need.url} at {self.need.commit}"

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def check(self, context: BuildContext) -> StepCost:
        """Check for git and a full commit hash. Raises LlmbError."""
        if shutil.which("git", path=context.environ.get("PATH")) is None:
            raise LlmbError(
                "git is not on PATH",
                hint="install git (Debian: apt-get install git)",
                code="no-git",
            )
        if not re.fullmatch(r"[0-9a-f]{40}", self.need.commit):
            hint = "report it to the plugin's author: a branch or a tag may move"
            message = f"'{self.need.commit}' is not a full commit hash of {self.need.url}"
            raise LlmbError(message, hint=hint, code="commit-invalid", value=self.need.commit)
        return StepCost()

    def build(self, context: BuildContext) -> Facts:
        """Fetch the commit, or all commits from a server that serves no single one.

        Check it out.
        """
        part = self.folder / f".{self.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        files.make_folder(part)
        commands = Commands(
            context=context, environ={**context.environ, "GIT_TERMINAL_PROMPT": "0"}
        )
        git, commit = ["git", "-C", str(part), "-c", "advice.detachedHead=false"], self.need.commit
        try:
            commands.run("git init", [*git, "init", "--quiet"])
            commands.run("git remote add", [*git, "remote", "add", "origin", self.need.url])
            context.progress.say("fetches the commit")
            try:
                commands.run("git fetch", [*git, "fetch", "--quiet", "--depth=1", "origin", commit])
            except shell.StoppedError:
                raise
            except LlmbError:
                context.progress.say("fetches all commits")
                commands.run("git fetch", [*git, "fetch", "--quiet", "--tags", "origin"])
            commands.run("git checkout", [*git, "checkout", "--quiet", "--detach", commit])
            if (part / ".gitmodules").exists():
                commands.run(
                    "git submodule update",
                    [*git, "submodule", "update", "--init", "--recursive", "--depth=1"],
                )
            files.write_json(part / ".git" / MANIFEST, _manifest(part))
            permissions.share_tree(part)
            shutil.rmtree(self.path, ignore_errors=True)
            part.rename(self.path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return {"url": self.need.url, "commit": commit, "folder": str(self.path)}


def is_there(name: str, facts: Facts, install: Path) -> bool:
    return (Path(str(facts.get("folder"))) / ".git").exists()


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[Fault]:
    """Return True if it is at its commit, and with ``deep`` its files are unchanged.

    Needs no git.
    """
    folder = Path(str(facts.get("folder")))
    if not is_there(name, facts, install):
        return [Fault(message=f"{folder} is missing", code="folder-missing", value=str(folder))]
    head = _head(folder / ".git")
    if head != facts.get("commit"):
        message = f"{folder} is at commit {head or 'unknown'}, expected {facts.get('commit')}"
        return [Fault(message=message, code="commit-differs", value=head)]
    changed = _changed(folder) if deep else []
    if not changed:
        return []
    message = f"{folder}: {len(changed)} files are missing or changed, the first: {changed[0]}"
    return [Fault(message=message, code="folder-changed", value=tuple(changed))]


def _head(git: Path) -> str:
    """The commit that is checked out. Empty if it cannot be read."""
    try:
        text = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not text.startswith("ref: "):
            return text
        name = text.removeprefix("ref: ")
        if (git / name).is_file():
            return (git / name).read_text(encoding="utf-8").strip()
        lines = (git / "packed-refs").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {name}")), "")


def _manifest(folder: Path) -> dict[str, str]:
    """Every file of a working tree with the sha256 of its content, of a link that of its target."""
    return {
        path.relative_to(folder).as_posix(): _sha256(path)
        for path in sorted(folder.rglob("*"))
        if ".git" not in path.relative_to(folder).parts and (path.is_symlink() or path.is_file())
    }


def _sha256(path: Path) -> str:
    if path.is_symlink():
        return hashlib.sha256(str(path.readlink()).encode()).hexdigest()
    return sha256_of(path)


def _changed(folder: Path) -> list[str]:
    """Return the files that are missing or changed since the checkout, or its missing manifest."""
    manifest = files.read_json(folder / ".git" / MANIFEST)
    if manifest is None:
        return [f".git/{MANIFEST}"]
    paths = {name: folder / name for name in manifest}
    return [
        name
        for name, path in paths.items()
        if not (path.is_symlink() or path.is_file()) or _sha256(path) != manifest[name]
    ]


remove = remove_folder


def describe(name: str, facts: Facts) -> str:
    return f"{facts.get('url')} at {str(facts.get('commit'))[:_SHORT]}"
