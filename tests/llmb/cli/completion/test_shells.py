# SPDX-License-Identifier: Apache-2.0
"""Tests completion in the real bash, zsh and fish, in a terminal where the shell needs one.

A test of a shell that is not installed is skipped with the line that installs it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

PROMPT = "READY> "
CLEAR = "\x15"  # Ctrl-U
Spawn = Callable[..., "pexpect.spawn[str]"]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; on Debian: apt-get install {name}")
    return found


@pytest.fixture
def environ(tmp_path: Path, home: Path) -> dict[str, str]:
    """llmb-run and llmb-install on PATH, in an empty home."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("llmb-run", "llmb-install"):
        (folder / tool).symlink_to(Path(sys.executable).with_name(tool))
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "PATH": f"{folder}:/usr/bin:/bin", "TERM": "dumb"}


@pytest.fixture
def terminal(environ: dict[str, str], tmp_path: Path) -> Iterator[Spawn]:
    """Starts a shell in a terminal of 200 columns, and gives it commands, each followed by its
    prompt.
    """
    started: list[pexpect.spawn[str]] = []

    def start(name: str, *arguments: str, commands: tuple[str, ...]) -> "pexpect.spawn[str]":
        child = pexpect.spawn(
            program(name),
            list(arguments),
            env=environ,
            cwd=str(tmp_path),
            encoding="utf-8",
            timeout=60,
            dimensions=(50, 200),
        )
        started.append(child)
        for command in commands:
            child.sendline(command)
            child.expect_exact(PROMPT)
        return child

    yield start
    for child in started:
        child.close(force=True)


def types_words(child: "pexpect.spawn[str]") -> None:
    """Tab completes words that are unique, continues an open one, and lists several in the order of
    llmb.
    """
    child.send("llmb-run expl\t")
    child.expect_exact("explain ")
    child.send(f"{CLEAR}llmb-run submit -w nemotronh -s sm\t")
    child.expect_exact("smoke ")
    child.send("--set tok\t")
    child.expect_exact("tokenizer=")
    child.send("nu\t")
    child.expect_exact("null")
    child.send(f"{CLEAR}llmb-run completion \t\t")
    child.expect(r"bash\s+zsh\s+fish")
    child.send(f"{CLEAR}llmb-install --set venv_type=c\t")
    child.expect_exact("conda")


def test_bash_in_a_terminal(terminal: Spawn) -> None:
    plain = "bind 'set enable-bracketed-paste off'"
    loads = "source <(llmb-run completion bash); source <(llmb-install completion bash)"
    types_words(
        terminal("bash", "--norc", "--noprofile", commands=(f"PS1='READY''> '; {plain}", loads))
    )


@pytest.mark.parametrize("way", ["sourced", "autoloaded"])
def test_zsh_in_a_terminal(way: str, terminal: Spawn, tmp_path: Path) -> None:
    """Sourced without compinit before, and from a folder of fpath."""
    loads = "source <(llmb-run completion zsh); source <(llmb-install completion zsh)"
    if way == "autoloaded":
        (tmp_path / "site").mkdir()
        loads = "for t in llmb-run llmb-install; do $t completion zsh > site/_$t; done; "
        loads += "fpath=($PWD/site $fpath); autoload -Uz compinit; compinit -u -D"
    first = "PROMPT='READY''> '; unset zle_bracketed_paste; unsetopt prompt_cr prompt_sp; LISTMAX=0"
    types_words(terminal("zsh", "-f", commands=(first, loads)))


FISH = """
llmb-run completion fish | source
llmb-install completion fish | source
for line in $argv; echo "=== $line"; complete -C$line; end
"""
COMPLETED = {
    "llmb-run sub": ["submit", "submit-all"],
    "llmb-run single -w nemotronh -s sm": ["smoke"],
    "llmb-run single -w nemotron4 --set tok": ["tokenizer="],
    "llmb-run completion ": ["bash", "zsh", "fish"],
    "llmb-run bulk jo": ["jobs.txt"],
    "llmb-run list --install di": ["directory/"],
    "llmb-run jobs show ": [],
    "llmb-install --set venv_type=c": ["venv_type=conda"],
}


def test_fish(environ: dict[str, str], tmp_path: Path) -> None:
    """`complete -C` is what Tab does."""
    (tmp_path / "jobs.txt").touch()
    (tmp_path / "directory").mkdir()
    argv = [program("fish"), "--no-config", "-c", FISH, *COMPLETED]
    done = subprocess.run(
        argv, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    found = {}
    for block in done.stdout.split("=== ")[1:]:
        line, *lines = block.splitlines()
        found[line] = [shown.split("\t")[0] for shown in lines]
    assert found == COMPLETED


IN_BASH = """
source <(llmb-run completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=(llmb-run) COMP_CWORD=1
compopt() { echo "compopt $*"; }
_llmb_run_complete "${2:-llmb-run}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        # bash splits the word at =
        ("llmb-run single -w nemotron4 --set tokenizer=", ["null", "hub"]),
        ("llmb-run single -w nemotron4 --set tok", ["compopt -o nospace", "tokenizer="]),
        ("llmb-run submit-all jo", ["compopt -o default -o bashdefault", ""]),
        ("llmb-run jobs show ", [""]),
    ],
)
def test_what_bash_gets(
    line: str, wanted: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    argv = [
        program("bash"),
        "--norc",
        "-c",
        IN_BASH,
        "bash",
        line,
        str(tmp_path / "bin" / "llmb-run"),
    ]
    done = subprocess.run(
        argv, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stderr, done.stdout.splitlines()) == ("", wanted)


def test_a_program_that_is_gone_leaves_the_line_alone(environ: dict[str, str]) -> None:
    argv = [program("bash"), "--norc", "-c", IN_BASH, "bash", "llmb-run jo", "/gone"]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    assert (done.stderr, done.stdout) == ("", "\n")


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")]
)
def test_the_scripts_are_valid_wherever_they_are_copied(
    shell: str, check: str, environ: dict[str, str], tmp_path: Path
) -> None:
    argv = [str(tmp_path / "bin" / "llmb-run"), "completion", shell]
    text = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in text
    assert "@" not in text.replace("${(@", "").replace('"$@"', "").replace("[@]", "")
    path = tmp_path / "script"
    path.write_text(text)
    subprocess.run([program(shell), check, str(path)], check=True, env=environ)
