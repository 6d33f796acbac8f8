# SPDX-License-Identifier: Apache-2.0
"""A step that has a git repository at one commit."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from llmb.errors import LlmbError
from llmb.system import shell
from llmb.workload import needs
from llmb_installer.step import Context, Estimate, Facts, Step

_SHORT = 12  # hex digits of a commit in a folder's name


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoStep(Step):
    """Check the commit of ``need`` out below ``folder``."""

    kind: ClassVar[str] = "repo"
    need: needs.Repo
    folder: Path

    @property
    def name(self) -> str:
        """The repository's last word and the commit."""
        word = re.sub(r"[^\w.-]", "-", self.need.url.rstrip("/").removesuffix(".git").rpartition("/")[2]) or "repo"
        return f"{word}-{self.need.commit[:_SHORT]}"

    @property
    def title(self) -> str:
        """Where it comes from, and its commit."""
        return f"Repository {self.need.url} at {self.need.commit}"

    @property
    def path(self) -> Path:
        """The working tree."""
        return self.folder / self.name

    def check(self, context: Context) -> Estimate:
        """Whether there is git, and the commit is one. Raises LlmbError."""
        if shutil.which("git", path=context.environ.get("PATH")) is None:
            raise LlmbError("there is no git here", hint="install git (Debian: apt-get install git)")
        if not re.fullmatch(r"[0-9a-f]{40}", self.need.commit):
            hint = "tell the plugin's maker: a branch or a tag may move"
            raise LlmbError(f"'{self.need.commit}' is not a whole commit of {self.need.url}", hint=hint)
        return Estimate()

    def build(self, context: Context) -> Facts:
        """Fetch the one commit, all commits where the server gives no single one, and check it out."""
        from llmb_installer.execution.subprocesses import Commands

        part = self.folder / f".{self.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        commands = Commands(context=context, environ={**context.environ, "GIT_TERMINAL_PROMPT": "0"})
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
                    "git submodule update", [*git, "submodule", "update", "--init", "--recursive", "--depth=1"]
                )
            shutil.rmtree(self.path, ignore_errors=True)
            part.rename(self.path)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return {"url": self.need.url, "commit": commit, "folder": str(self.path)}


def is_there(name: str, facts: Facts, install: Path) -> bool:
    """Whether its working tree is there."""
    return (Path(str(facts.get("folder"))) / ".git").exists()


def verify(name: str, facts: Facts, install: Path, *, deep: bool) -> list[str]:
    """Whether it is at its commit; ``deep``: and no file of it was changed."""
    folder = str(facts.get("folder"))
    if not is_there(name, facts, install):
        return [f"{folder} is missing"]
    head = shell.run(["git", "-C", folder, "rev-parse", "HEAD"])
    if head.out.strip() != facts.get("commit"):
        return [f"{folder} is at {head.out.strip() or head.err.strip()} instead of {facts.get('commit')}"]
    changed = shell.run(["git", "-C", folder, "status", "--porcelain"]).out.splitlines() if deep else []
    return [f"{folder}: {len(changed)} changed, the first: {changed[0].strip()}"] if changed else []


def remove(name: str, facts: Facts, install: Path) -> None:
    """Take the working tree away."""
    folder = Path(str(facts.get("folder")))
    if folder.exists():
        shutil.rmtree(folder)


def describe(name: str, facts: Facts) -> str:
    """Where it comes from."""
    return f"{facts.get('url')} at {str(facts.get('commit'))[:_SHORT]}"
