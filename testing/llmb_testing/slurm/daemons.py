# SPDX-License-Identifier: Apache-2.0
"""Daemons of a test cluster: finds their programs, stops them by their pid files, starts MariaDB
for slurmdbd.
"""

import contextlib
import getpass
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from llmb.core import files, shell
from llmb.errors import LlmbError

_CLUSTER = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "sinfo": "slurm-client",
}
_ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server-core"}
_SHARED = Path("/usr/share/mysql"), Path("/usr/share/mariadb")  # MariaDB 10 and 11
_TABLES = "m*_system_tables.sql", "m*_system_tables_data.sql"
START_SECONDS = 180.0
_END_SECONDS = 60.0


def missing_packages(*, accounting: bool) -> list[str]:
    """Return the Debian packages that a cluster needs and this machine lacks."""
    packages = _CLUSTER | (_ACCOUNTING if accounting else {})
    return list(
        dict.fromkeys(package for program, package in packages.items() if _find(program) is None)
    )


def path_of(program: str) -> str:
    """Return the full path of a program, also of one in an sbin folder. Raises LlmbError."""
    path = _find(program)
    if path is None:
        package = (_CLUSTER | _ACCOUNTING).get(program, program)
        raise LlmbError(
            f"{program}: program not found",
            hint=f"apt-get install {package} (Debian)",
            code="program-missing",
            value=program,
        )
    return path


def search_path() -> str:
    """PATH with the sbin folders."""
    return ":".join([os.environ.get("PATH", "/usr/bin:/bin"), "/usr/sbin", "/sbin"])


def _find(program: str) -> str | None:
    return shutil.which(program, path=search_path())


def process_of(pid_file: Path, name: str) -> psutil.Process | None:
    """Return the running process with the id in ``pid_file`` and a name that starts with ``name``.
    A zombie does not run.
    """
    try:
        process = psutil.Process(int(pid_file.read_text()))
        runs = _runs(process) and process.name().startswith(name)
    except (FileNotFoundError, ValueError, psutil.Error):
        return None
    return process if runs else None


def end(pid_file: Path, name: str) -> None:
    """Stop the daemon with SIGTERM, and with SIGKILL after a minute. Does nothing if it does not
    run.
    """
    process = process_of(pid_file, name)
    if process is not None:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(LlmbError):  # not the pid file's end: daemons write after it
            wait_for(lambda: not _runs(process), _END_SECONDS, f"{name} to end")
        if _runs(process):
            process.kill()
            wait_for(lambda: not _runs(process), _END_SECONDS, f"{name} to end")
    pid_file.unlink(missing_ok=True)


def kill_with_steps(pid_file: Path, log: Path) -> None:
    """Kill a slurmd, the job steps that write to the same ``log``, and their ranks, as a node
    failure does.
    """
    # First the processes that would start others or report their end.
    slurmd = process_of(pid_file, "slurmd")
    killed = [slurmd] if slurmd is not None else []
    _kill(killed)
    named = [
        step
        for step in psutil.process_iter(["name"])
        if str(step.info["name"]).startswith("slurmstepd")
    ]
    steps = [step for step in named if _has_open(step, log)]
    for step in steps:
        _signal(step.pid, signal.SIGSTOP)
    ranks = [rank for step in steps for rank in _children(step)]
    killed += [*steps, *ranks]
    _kill(killed)
    wait_for(lambda: not any(map(_runs, killed)), _END_SECONDS, "the processes of a node to end")
    pid_file.unlink(missing_ok=True)


def pause(pid_file: Path, name: str) -> None:
    """Suspend a daemon, so that it answers nothing."""
    if (process := process_of(pid_file, name)) is not None:
        process.suspend()


def resume(pid_file: Path, name: str) -> None:
    """Resume a suspended daemon."""
    if (process := process_of(pid_file, name)) is not None:
        process.resume()


def wait_for(condition: Callable[[], bool], seconds: float, name: str) -> None:
    """Wait until ``condition`` holds. Raises LlmbError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LlmbError(
                f"waited {seconds:g} s for {name}, without success", code="wait-timeout"
            )
        time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _has_open(process: psutil.Process, path: Path) -> bool:
    try:
        return any(opened.path == str(path) for opened in process.open_files())
    except psutil.Error:
        return False


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        _signal(process.pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def socket_of(folder: Path) -> Path:
    """Return the database's socket, for the cluster in ``folder``."""
    return folder / "run" / "mysql"


def start_database(folder: Path, pid_file: Path) -> None:
    """Start MariaDB, and create its data folder the first time. Raises LlmbError."""
    if process_of(pid_file, "mariadbd") is not None:
        return
    data, temporary = folder / "mysql", folder / "mysql-tmp"
    # of its own: in a shared one, a server that starts removes the tables of others
    temporary.mkdir(exist_ok=True)
    user = getpass.getuser()
    common = [
        path_of("mariadbd"),
        "--no-defaults",
        f"--datadir={data}",
        f"--tmpdir={temporary}",
        f"--user={user}",
    ]
    if not (data / "mysql").is_dir():
        _make_database(folder, common)
    argv = [
        *common,
        f"--socket={socket_of(folder)}",
        "--skip-networking",
        "--skip-grant-tables",
        f"--pid-file={pid_file}",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900",
        "--skip-log-bin",
    ]
    log = folder / "log" / "mariadbd.log"
    process = shell.spawn(argv, env={}, cwd=folder, log=log, session=True)
    wait_for(socket_of(folder).exists, START_SECONDS, f"mariadbd to start; see {log}")
    shell.let_go(process)


def _make_database(folder: Path, common: list[str]) -> None:
    """Fill the data folder, as mariadb-install-db (of another package) does."""
    (folder / "mysql" / "mysql").mkdir(parents=True)
    sources = [
        path for shared in _SHARED for pattern in _TABLES for path in sorted(shared.glob(pattern))
    ]
    script = folder / "etc" / "tables.sql"
    files.write_text(
        script, "use mysql;\n" + "".join(path.read_text(encoding="utf-8") for path in sources)
    )
    argv = [*common, "--bootstrap", "--log-warnings=0", "--enforce-storage-engine="]
    process = shell.run(
        ["bash", "-c", 'exec "${@:2}" < "$1"', "_", str(script), *argv], timeout=START_SECONDS
    )
    if process.code:
        raise LlmbError(
            f"{folder / 'mysql'}: MariaDB cannot create its data folder: {process.err.strip()}"
        )
