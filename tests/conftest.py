# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all tests: an empty home, clusters written by hand, and the real commands."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from hypothesis import settings

from llmb.builtin.plugins import builtin_plugins
from llmb.cli import app
from llmb.contract.spec import Workload
from llmb.plugins.loader import load_plugins
from llmb_testing.fork_server import ForkServer

# The duration of an example depends on the load of the machine.
settings.register_profile("llmb", deadline=None)
settings.load_profile("llmb")

_TESTS = Path(__file__).resolve().parent
_ROOT = _TESTS.parent
_CACHE = Path(os.environ.get("LLMB_TEST_CACHE") or _ROOT / ".cache" / "tests")
_ENVIRONMENT = dict(os.environ)  # before any test: pip's configuration may be in the user's home

# In the background a shell ignores Ctrl-C, and so would the tests and the commands they run.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What llmb-run and llmb-install import, at their start or when they need it.
_IMPORTED = [
    *("llmb.*", "llmb_installer.*", "llmb_llama31", "llmb_nemotron4", "llmb_nemotronh"),
    *("llmb_microbench.program.settings", "email.parser", "jinja2", "psutil"),
]

_OWN = ("LLMB_", "SBATCH_", "SLURM_", "XDG_")
_KEPT = ("LLMB_TEST_",)
_PYTESTS = {"PYTEST_CURRENT_TEST"}

Command = Callable[..., "subprocess.CompletedProcess[str]"]
Start = Callable[..., "subprocess.Popen[str]"]

_WORDING = _TESTS / "wording"

# These take minutes, and have targets of their own: `make test-docs` runs the commands of the
# documentation and of the examples, `make test-runs` trains and measures on each cluster type, and
# runs each benchmark of llmb itself on a small size.
_APART = {
    "LLMB_TEST_DOCS": [
        "integration/test_documented.py",
        "integration/test_ssh_example.py",
        "llmb/plugins/test_write_a_plugin_page.py",
        "slurm/test_documented.py",
    ],
    "LLMB_TEST_RUNS": [
        "benchmarks/test_gpu.py",
        "benchmarks/test_guard.py",
        "integration/test_correctness.py",
        "integration/test_inference_example.py",
        "integration/test_microbenchmarks.py",
        "integration/test_sustained_run.py",
        "llmb/builtin/runai/test_collectives.py",
        "llmb/builtin/runai/test_train.py",
        "slurm/test_accept.py",
        "slurm/test_diagnosis.py",
        "slurm/test_microbenchmarks.py",
        "slurm/test_train.py",
    ],
}
collect_ignore = [
    name for variable, names in _APART.items() if not os.environ.get(variable) for name in names
]

# The files that take longest, longest first: `make test` starts them first, so that none of them
# runs alone at the end. `make test ARGS=--durations=50` shows what else takes long.
_LONGEST = [
    "slurm/test_trouble.py",
    "slurm/test_admin.py",
    "integration/test_main_job.py",
    "installer/applying/test_install.py",
    "workloads/test_torch_pretrain.py",
    "llmb/builtin/local/test_queue.py",
    "llmb/plugins/test_plugin_folders.py",
    "llmb/plugins/test_next_commands.py",
    "llmb/builtin/local/test_programs.py",
    "llmb/builtin/local/test_kit_finds_mutants.py",
    "llmb/builtin/runai/test_pods.py",
    "slurm/test_ends.py",
    "slurm/test_programs.py",
    "llmb/core/test_console.py",
    "installer/wizard/test_terminal.py",
    "installer/planning/test_change.py",
    "slurm/test_exactly_once.py",
    "llmb/builtin/runai/test_exactly_once.py",
    "slurm/test_slurm_contract.py",
    "llmb/builtin/runai/test_runai_contract.py",
    "installer/applying/test_killed.py",
    "slurm/test_pyxis.py",
    "llmb/plugins/test_new_plugin.py",
    "slurm/test_documented_plugins.py",
    "slurm/test_vboost.py",
    "sqshpull/test_build.py",
    "llmb/run/test_exactly_once.py",
    "llmb/cli/completion/test_shells.py",
    "slurm/test_install_on_a_node.py",
    "plugins/test_contracts.py",
    "slurm/test_script.py",
    "llmb/builtin/runai/test_commands.py",
    "llmb/builtin/local/test_run.py",
    "integration/test_telemetry_flow.py",
    "llmb/kit/test_ssh_contract.py",
    "llmb/builtin/local/test_local_contract.py",
    "installer/wizard/test_terminal_back.py",
    "workloads/test_models.py",
    "llmb/show/report/test_page.py",
]


# a file: a line of JSON for each test of a fault, for docs/reliability.py
_PROOF = os.environ.get("LLMB_TEST_PROOF")
_SEEN = pytest.StashKey[dict[str, int]]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The workers of ``-n auto``: two more than cores, as half of the time of the tests is
    waiting.
    """
    return (os.cpu_count() or 1) + 2


def pytest_configure(config: pytest.Config) -> None:
    """Check the list of the longest files, in the process whose errors are printed."""
    named = [*_LONGEST, *collect_ignore]
    if missing := [name for name in named if not (_TESTS / name).is_file()]:
        raise pytest.UsageError(f"{__file__}: these files do not exist: {', '.join(missing)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move the longest files to the front, where workers share the files."""
    if hasattr(config, "workerinput"):
        ranks = {_TESTS / name: rank for rank, name in enumerate(_LONGEST)}
        items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Counts what a fault test observed, before its assertions: tried, lost, doubled, tracebacks,
    wrong_ends.
    """
    counts = request.node.stash.setdefault(_SEEN, Counter[str]())

    def count(**more: int) -> None:
        for name, number in more.items():
            counts[name] += number

    return count


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the outcome and the counts of each test with the mark `fault`."""
    report = yield
    mark = item.get_closest_marker("fault")
    if _PROOF and mark is not None and (report.when == "call" or report.outcome != "passed"):
        ended = {"failed": report.failed} if not report.skipped else {"skipped": True, "tried": 0}
        counts = item.stash.get(_SEEN, dict[str, int]())
        line = {"fault": mark.args[0], "tried": 1, **counts, **ended}
        with Path(_PROOF).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
    return report


@pytest.fixture(autouse=True)
def no_leaked_environment() -> Iterator[None]:
    """Fails a test that leaves a changed variable, and restores the environment."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    changed -= _PYTESTS
    for name in changed:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    if changed:
        pytest.fail(f"the test left environment variables changed: {', '.join(sorted(changed))}")


@pytest.fixture(scope="session")
def new_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders beside each other: pytest reads the whole parent folder for the next number of a
    name.
    """
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def home(
    no_leaked_environment: None, new_homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty home folder, without any variable that llmb reads: no test sees the user's files."""
    folder = next(new_homes)
    folder.mkdir(mode=0o700)
    for name in [*os.environ]:
        if (name.startswith(_OWN) and not name.startswith(_KEPT)) or name in (
            "STAGE_PATH",
            "COLUMNS",
            "NO_COLOR",
            "FORCE_COLOR",
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def wording(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> Callable[..., None]:
    """Compares a text for users with the golden file of its command, tests/wording/COMMAND.txt.

    ``wording("submit-all", text)``. ``hidden`` maps parts that differ between runs to placeholders.
    Tests assert codes, keys and places; only these files have the sentences. LLMB_TEST_ACCEPT=1
    with ``-n 0`` writes them.
    """
    calls = itertools.count(1)
    fixed = {str(tmp_path): "<tmp>", str(home): "<home>"}
    # The checkout may be /llmb, and ~/.config/llmb is not it.
    checkout = re.compile(rf"(?<![\w.-]){re.escape(str(_ROOT))}(?![\w-])")

    def check(command: str, text: str, hidden: Mapping[str, str] | None = None) -> None:
        for value, placeholder in sorted(
            {**fixed, **(hidden or {})}.items(), key=lambda pair: -len(pair[0])
        ):
            text = text.replace(value, placeholder)
        text = checkout.sub("<checkout>", text)
        text = re.sub(r"\b\d{4}-\d\d-\d\d[a-z]{1,2}\b", "<session>", text)
        number = next(calls)
        name = (
            f"{Path(request.node.path).stem}"
            f" {request.node.name}{f' #{number}' if number > 1 else ''}"
        )
        path = _WORDING / f"{command.replace(' ', '-')}.txt"
        texts = golden_texts(path)
        text = text.strip("\n")
        if os.environ.get("LLMB_TEST_ACCEPT"):
            assert "PYTEST_XDIST_WORKER" not in os.environ, (
                "LLMB_TEST_ACCEPT needs -n 0: workers would overwrite a file"
            )
            texts[name] = text
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                "".join(f"=== {key}\n{texts[key]}\n\n" for key in sorted(texts)), encoding="utf-8"
            )
        how = f"LLMB_TEST_ACCEPT=1 make test ARGS='-n 0 {request.node.nodeid}' accepts it"
        assert texts.get(name) == text, f"tests/wording/{path.name} differs for '{name}'; {how}"

    return check


def golden_texts(path: Path) -> dict[str, str]:
    """The texts of a file of tests/wording by the names of their tests; none of a file that does
    not exist.
    """
    content = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = (
        section.partition("\n") for section in re.split(r"^=== ", content, flags=re.MULTILINE)[1:]
    )
    return {name: text.strip("\n") for name, _, text in sections}


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., Path]:
    """Writes a cluster_config.yaml, without installing anything, and returns its folder. Keywords
    are more keys.
    """

    def make(
        cluster_type: str = "slurm", gpu_type: str = "h100", *, name: str = "install", **keys: Any
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        config = {"schema_version": 2, "cluster_type": cluster_type, "gpu_type": gpu_type, **keys}
        (folder / "cluster_config.yaml").write_text(
            yaml.safe_dump(config, sort_keys=False), encoding="utf-8"
        )
        return folder

    return make


@pytest.fixture
def pyxis_mock(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Gives srun of a SlurmKit the options of pyxis, ``known`` of them or all, by a plugin that
    starts no container.
    """
    written: list[Path] = []

    def install(kit: Any, known: str | None = None) -> None:
        compiler = shutil.which("gcc")
        if compiler is None:
            pytest.skip("no pyxis mock here: apt-get install --no-install-recommends gcc libc6-dev")
        plugin = tmp_path / "pyxis_mock.so"
        version = [int(part) for part in re.findall(r"\d+", kit.run("sbatch", "--version"))[:3]]
        number = f"-DVERSION=0x{version[0]:02x}{version[1]:02x}{version[2]:02x}"
        source = Path(__file__).with_name("slurm") / "pyxis_mock.c"
        options = [number, *([f"-DKNOWN={known}"] if known else [])]
        subprocess.run([compiler, "-shared", "-fPIC", *options, "-o", plugin, source], check=True)
        plugstack: Path = kit.folder / "etc/plugstack.conf"
        plugstack.write_text(f"required {plugin}\n")
        written.append(plugstack)

    yield install
    for path in written:
        path.write_text("")


@pytest.fixture
def smallest_image() -> bytes:
    """The content of the smallest valid squashfs image: only a superblock."""
    return b"hsqs" + bytes(36) + struct.pack("<Q", 96) + bytes(48)


@pytest.fixture(scope="session")
def llmb_program() -> str:
    """The real llmb-run."""
    found = shutil.which("llmb-run", path=str(Path(sys.executable).parent))
    assert found is not None, "llmb-run is not installed beside this Python"
    return found


@pytest.fixture(scope="session")
def new_fork_server() -> Iterator[Callable[[Mapping[str, str]], ForkServer]]:
    """Runs llmb-run and llmb-install in processes that need not import them: the tests start a
    thousand.
    """
    with contextlib.ExitStack() as servers:
        yield lambda environ: servers.enter_context(ForkServer(_IMPORTED, environ))


@pytest.fixture(scope="session")
def fork_server(new_fork_server: Callable[[Mapping[str, str]], ForkServer]) -> ForkServer:
    """For commands that have the environment of the tests."""
    return new_fork_server(_ENVIRONMENT)


@pytest.fixture
def llmb_run(tmp_path: Path, llmb_program: str, fork_server: ForkServer) -> Command:
    """Runs the real llmb-run without a terminal. Keywords other than ``cwd`` and ``stdin`` are
    variables.
    """

    def run(
        *arguments: object,
        cwd: Path = tmp_path,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        argv = [llmb_program, *map(str, arguments)]
        return fork_server.run(argv, env={**os.environ, **variables}, cwd=cwd, stdin=stdin)

    return run


@pytest.fixture
def llmb_start(llmb_program: str) -> Iterator[Start]:
    """Starts the real llmb-run in the background; keywords are variables. Kills it after the
    test.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [llmb_program, *map(str, arguments)],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def llmb_here(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs llmb-run within this process, which is faster and allows monkeypatching."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        words = [str(argument) for argument in arguments]
        code = app.run(words)
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, printed.out, printed.err)

    return run


@pytest.fixture
def documented_plugins(tmp_path: Path) -> Path:
    """The plugins of docs/write-a-plugin.md as installed distributions: code blocks that begin with
    a file's name.
    """
    folder = tmp_path / "documented"
    text = (_ROOT / "docs/write-a-plugin.md").read_text(encoding="utf-8")
    for name, content in re.findall(
        r"^```(?:yaml|python)\n# (llmb_\w+/[\w.]+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        info = folder / f"{path.parent.name}-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {path.parent.name}\nVersion: 1\n"
        )
        (info / "entry_points.txt").write_text(f"[llmb]\nentry = {path.parent.name}\n")
    return folder


@pytest.fixture(scope="session")
def torch_install() -> Path:
    """An install directory with torch, created by the real llmb-install (a minute, 1.2 GB) and kept
    for later runs.
    """
    folder = _CACHE / "local"
    program = Path(sys.executable).with_name("llmb-install")
    argv = [
        str(program),
        "--config",
        str(_ROOT / "examples" / "local.yaml"),
        "--install",
        str(folder),
        "--yes",
    ]
    while True:
        done = subprocess.run(
            argv,
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        if done.returncode == 0:
            return folder
        if "is in use by" not in done.stderr:  # by another worker
            pytest.fail(f"llmb-install could not make {folder}:\n{done.stdout}\n{done.stderr}")
        time.sleep(2)


_TRAIN = """\
import sys, time, types
from llmb_workloads import torch_pretrain
from llmb_workloads.steplog import LoggedStep, end_line, step_line

def train(recipe, place, plan, pause):
    for step in range(recipe.max_steps if place.rank == 0 else 0):
        figures = {"loss": 7.0, "seconds": 0.05, "tflops": None, "peak_memory": 1, "memory": 1}
        rest = {"learning_rate": recipe.learning_rate, "global_batch": recipe.global_batch}
        print(step_line(LoggedStep(step=step, max_steps=recipe.max_steps, **rest, **figures)), flush=True)
        time.sleep(0.05)
    if place.rank == 0:
        print(end_line(recipe.max_steps))

sys.modules["llmb_workloads.torch_train"] = types.ModuleType("torch_train")
sys.modules["llmb_workloads.torch_train"].train = train
torch_pretrain.check_versions = lambda: None
assert sys.argv[1:3] == ["-m", "llmb_workloads.torch_pretrain"], sys.argv
sys.exit(torch_pretrain.main(sys.argv[3:]))
"""


@pytest.fixture
def torchless_venv(tmp_path: Path) -> Path:
    """An environment whose torch_pretrain logs steps and trains nothing: a rank need not import
    torch for seconds.
    """
    folder = tmp_path / "torchless"
    (folder / "bin").mkdir(parents=True)
    (folder / "train.py").write_text(_TRAIN)
    # complete: nothing is missing
    (folder / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/train.py "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def mpi_venv() -> Path:
    """A Python environment with MPICH and mpi4py (70 MB), made once and kept. Skips where the index
    has no wheels.
    """
    folder = _CACHE / "mpi"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "mpi.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be making it
        if (folder / "complete").exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
        for argv in (
            [sys.executable, "-m", "venv", str(folder)],
            [*pip, "mpich>=5,<6", "mpi4py>=4.1,<5"],
        ):
            done = subprocess.run(
                argv, env=_ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600
            )
            if done.returncode != 0:
                pytest.skip(f"no real MPI here: {' '.join(argv)}: {done.stderr.strip()}")
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def workloads() -> dict[str, Workload]:
    """The workloads of llmb, by key."""
    found = load_plugins(builtin_plugins()).workloads()
    return {
        key: found[key] for key in ("pretrain_llama3.1", "pretrain_nemotron4", "pretrain_nemotronh")
    }
