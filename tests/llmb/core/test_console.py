# SPDX-License-Identifier: Apache-2.0
"""Tests that both commands end with a message, and never with a traceback, whatever surrounds
them.
"""

import html
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmb.core import console
from llmb.core.tables import Column, render

RUN = str(Path(sys.executable).with_name("llmb-run"))
INSTALL = str(Path(sys.executable).with_name("llmb-install"))
CONFIG = "schema_version: 2\ncluster_type: local\ngpu_type: cpu\n"
LOG = "Training epoch 0, iteration 0/0 | train_step_timing in s: 2.5 | x\n"
OTHER = b"caf\xe9"  # Latin-1, no UTF-8


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "inst").mkdir()
    (tmp_path / "inst" / "cluster_config.yaml").write_text(CONFIG)
    return tmp_path


def shell(place: Path, line: str | bytes, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run one line of sh, with ``run`` and ``install`` as the commands."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C.UTF-8", **variables}
    text = line if isinstance(line, bytes) else line.encode()
    text = text.replace(b"run ", RUN.encode() + b" ", 1) if text.startswith(b"run ") else text
    text = text.replace(b"@run", RUN.encode()).replace(b"@install", INSTALL.encode())
    done = subprocess.run(
        [b"sh", b"-c", text], cwd=place, env=environ, capture_output=True, timeout=120, check=False
    )
    assert b"Traceback" not in done.stdout + done.stderr, done.stderr.decode(errors="replace")
    assert b"\x1b" not in done.stdout + done.stderr
    return done


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_what_is_not_utf_8_is_shown_by_its_code(place: Path, encoding: str) -> None:
    (place / "logs").mkdir()
    Path(os.fsdecode(os.fsencode(place / "logs") + b"/log-" + OTHER + b".out")).write_text(LOG)
    for line in (
        b"@run parse logs",
        b"@run parse logs --format csv",
        b"@run parse logs --format md",
    ):
        assert shell(place, line, PYTHONIOENCODING=encoding).returncode == 0
    assert b"caf\\udce9" in shell(place, b"@run parse logs", PYTHONIOENCODING=encoding).stdout
    gone = shell(
        place, b"@run submit-all " + OTHER + b".yaml --install inst", PYTHONIOENCODING=encoding
    )
    assert (gone.returncode, b"caf\\udce9.yaml" in gone.stderr) == (2, True)
    given = (
        b"@run single -w nemotron4_tiny --dtype fp32 --scale 1 -d --install inst --env A=" + OTHER
    )
    for end in (b"", b" --format json", b" --format csv"):
        assert shell(place, given + end, PYTHONIOENCODING=encoding).returncode == 0
    assert (
        shell(place, b"@install status --install " + OTHER, PYTHONIOENCODING=encoding).returncode
        == 2
    )


@pytest.mark.parametrize(
    "line", ["@run list", "@run list --format md", "@install doctor", "@install status --help"]
)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding(place: Path, line: str, encoding: str) -> None:
    shell(place, line, PYTHONIOENCODING=encoding)


@pytest.mark.parametrize(
    "line", ["@run results", "@run jobs list", "@install status", "@install verify"]
)
def test_a_folder_that_was_removed_is_named(
    place: Path, line: str, wording: Callable[..., None]
) -> None:
    done = shell(place, f"mkdir gone && cd gone && rmdir ../gone && {line}")
    assert done.returncode == 2
    wording("llmb-run", done.stderr.decode())
    given = shell(
        place, f"mkdir gone && cd gone && rmdir ../gone && @run results --install {place}/inst"
    )
    assert given.returncode in (0, 2)


@pytest.mark.parametrize(
    "line", ["@run list", "@run list --format json", "@run plugins list", "@install doctor"]
)
def test_a_full_disk_behind_standard_output_is_an_error(place: Path, line: str) -> None:
    done = shell(place, f"{line} > /dev/full")
    assert (
        done.returncode,
        b"standard output cannot be written: No space left on device" in done.stderr,
    ) == (1, True)


@pytest.mark.parametrize(
    ("line", "code"), [("@run list -w nope", 2), ("@install status --install nope", 2)]
)
def test_without_a_working_stderr_the_exit_code_is_right(place: Path, line: str, code: int) -> None:
    for where in ("2> /dev/full", "2>&-", "2> /dev/full > /dev/full", ">&- 2>&-"):
        assert shell(place, f"{line} {where}").returncode == code


@pytest.mark.parametrize(
    "line", ["@run list", "@run results --install inst", "@install doctor", "@run parse - <&-"]
)
def test_closed_streams(place: Path, line: str) -> None:
    shell(place, f"{line} >&-")
    shell(place, f"{line} <&- >&-")


@pytest.mark.parametrize(
    "line", ["@run results --install inst", "@run list", "@install status --install inst"]
)
def test_no_home(place: Path, line: str) -> None:
    shell(place, f"unset HOME; {line}")
    shell(place, line, HOME="")


NOBODY = """
import os, pwd, sys
def unknown(number): raise KeyError(f"getpwuid(): uid not found: {number}")
os.environ.pop("HOME", None)
pwd.getpwuid = unknown
if sys.argv[1] == "run":
    from llmb.cli.app import main
    main(sys.argv[2:])
sys.argv[:2] = ["llmb-install"]
from llmb_installer.cli import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [
        "run parse log-x.out",
        "run results --install inst",
        "run list",
        "run jobs list --install inst",
        "run single -w nemotron4_tiny --dtype fp32 --scale 1 -d --install inst",
        "run results",
        "install status --install inst",
        "install doctor",
        "install --config a.yaml --dry-run",
    ],
)
def test_no_home_and_a_user_that_the_machine_does_not_know(place: Path, words: str) -> None:
    """As in a container that runs under any user's number."""
    (place / "log-x.out").write_text(LOG)
    (place / "a.yaml").write_text("cluster_type: local\ninstall: ~/there\n")
    command = [sys.executable, "-c", NOBODY, *words.split()]
    done = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 2), done.stderr


ESCAPE = "a\\033[31mb"


@pytest.mark.parametrize(
    "line",
    [
        "@run list -w {}",
        "@run --{}",
        "@run {}",
        "@run submit-all {} --install inst",
        "@run results --install {}",
        "@run parse {}",
        "@run jobs show {} --install inst",
        "@install status --install {}",
        "@install --{}",
        "@install {}",
        "@run single -w nemotron4_tiny --dtype {} --scale 1 -d --install inst",
    ],
)
def test_escape_sequences_of_a_command_line_come_back_as_text(place: Path, line: str) -> None:
    done = shell(place, line.format(f"\"$(printf '{ESCAPE}')\""))
    assert done.returncode == 2
    assert b"a\\x1b[31mb" in done.stderr


def test_escape_sequences_of_files_come_back_as_text(place: Path) -> None:
    (place / "jobs.yaml").write_text('"w_\\e[31m": {scales: [1], "a\\eb": 3}\n')
    printed = [shell(place, "@run submit-all jobs.yaml --install inst").stderr]
    (place / "inst" / "cluster_config.yaml").write_text(
        CONFIG.replace("local", '"lo\\e]0;x\\acal"')
    )
    printed.append(shell(place, "@run config --install inst").stderr)
    for text, shown in zip(printed, (b"\\x1b[31m", b"lo\\x1b]0;x\\x07cal"), strict=True):
        assert shown in text
        assert b"\x1b" not in text


def test_the_traceback_of_a_bug_holds_no_escape_sequence() -> None:
    code = "from llmb.core import console; console.prepare(); raise KeyError('\\x1b[31m')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" in done.stderr
    assert b"\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[1m", "\\x1b[1m"),
        ("\x9b1m", "\\x9b1m"),
        ("\u202e", "\\u202e"),
        ("é ±", "é ±"),
        ("a\x7f", "a\\x7f"),
        ("a\rb\0", "a\\rb\\x00"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert console.printable(text) == shown


def test_markdown_holds_no_html_of_others() -> None:
    rows = [{"a": "<img src=x onerror=alert(1)> & <b>"}]
    shown = render([Column(key="a", heading="<i>")], rows, "md").splitlines()[2].strip("| ")
    assert shown == html.escape(rows[0]["a"])


def test_messages_are_wrapped_at_words_and_commands_stay_whole() -> None:
    command = "llmb-install add pretrain_nemotron4 --install '/lustre/my runs/llmb' --yes"
    text = (
        f"error: {'word ' * 20}/a/path/{'long/' * 12}end\nhint: first free some space there, then:"
        f" {command}; and so on"
    )
    lines = console.wrap(text, 60).split("\n")
    assert [line.strip() for line in lines if command in line] == [f"{command};"]
    assert [line.strip() for line in lines if "/a/path/" in line] == [f"/a/path/{'long/' * 12}end"]
    assert all(line[:6].isspace() for line in lines[1:] if not line.startswith("hint:"))
    assert all(len(line) <= 60 for line in lines if command not in line and "/a/path/" not in line)
    assert " ".join("\n".join(lines).split()) == " ".join(text.split())


@pytest.mark.parametrize("text", ["error: short", "a table row, " * 20, "hint: " + "x" * 200, ""])
def test_what_fits_or_is_no_message_stays_as_it_is(text: str) -> None:
    assert console.wrap(text, 60) == text
    assert console.wrap("error: " + "word " * 30, 0) == "error: " + "word " * 30


def test_messages_are_wrapped_on_a_terminal_only(place: Path) -> None:
    line = b"@run single --workload x --install /no/such/folder --scale 8"
    piped = shell(place, line, COLUMNS="40").stderr.decode()
    assert max(map(len, piped.splitlines())) > 60
    shown = shell(place, b"script -qec '" + line + b"' /dev/null", COLUMNS="40").stdout.decode()
    assert max(map(len, shown.splitlines())) <= 50
    assert shown.split() == piped.split()


def test_sentences_are_wrapped_and_a_command_ends_with_its_sentence() -> None:
    text = (
        f"Stopped watching. {'The jobs keep running. ' * 3}\n"
        "Watch again: llmb-run jobs wait abcd1234 efgh5678. Cancel: llmb-run jobs cancel abcd1234\n"
        f"  {'an indented row ' * 6}"
    )
    lines = console.wrap(text, 60, prose=True).split("\n")
    assert "Watch again: llmb-run jobs wait abcd1234 efgh5678. Cancel:" in lines
    assert "llmb-run jobs cancel abcd1234" in lines
    assert lines[-1] == f"  {'an indented row ' * 6}"
    assert all(len(line) <= 60 for line in lines[:-1])
    assert console.wrap(text, 60) == text


@pytest.mark.parametrize("amount", ["12.27 s:", "(1,024 GPU-hours)", "95 %", "11-44 steps,"])
def test_a_number_stays_with_its_unit(amount: str) -> None:
    for width in range(30, 50):
        lines = console.wrap(f"{'ab ' * 9}{amount} {'cd ' * 9}", width, prose=True)
        assert amount in lines
        assert " ".join(lines.split()) == f"{'ab ' * 9}{amount} {'cd ' * 9}".strip()
