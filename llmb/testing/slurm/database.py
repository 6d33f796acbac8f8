# SPDX-License-Identifier: Apache-2.0
"""MariaDB for slurmdbd: a data folder of its own, reached by a socket alone."""

import getpass
from pathlib import Path

from llmb.errors import LlmbError
from llmb.system import files, shell
from llmb.testing.slurm import daemon
from llmb.testing.slurm.binaries import path_of

_SHARED = Path("/usr/share/mysql"), Path("/usr/share/mariadb")  # MariaDB 10 and 11
_TABLES = "m*_system_tables.sql", "m*_system_tables_data.sql"
_START_SECONDS = 180.0


def socket_of(folder: Path) -> Path:
    """The socket of the database in a cluster's ``folder``."""
    return folder / "run" / "mysql"


def start(folder: Path, pid_file: Path) -> None:
    """Make the data folder once and start the server. Raises LlmbError."""
    if daemon.process_of(pid_file, "mariadbd") is not None:
        return
    data = folder / "mysql"
    common = [path_of("mariadbd"), "--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}"]
    if not (data / "mysql").is_dir():
        _make(folder, common)
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
    daemon.wait_for(socket_of(folder).exists, _START_SECONDS, f"mariadbd; {log} says more")
    shell.let_go(process)


def _make(folder: Path, common: list[str]) -> None:
    """Fill the data folder as mariadb-install-db does, which is in another package."""
    (folder / "mysql" / "mysql").mkdir(parents=True)
    sources = [path for shared in _SHARED for pattern in _TABLES for path in sorted(shared.glob(pattern))]
    script = folder / "etc" / "tables.sql"
    files.write_text(script, "use mysql;\n" + "".join(path.read_text(encoding="utf-8") for path in sources))
    argv = [*common, "--bootstrap", "--log-warnings=0", "--enforce-storage-engine="]
    done = shell.run(["bash", "-c", 'exec "${@:2}" < "$1"', "_", str(script), *argv], timeout=_START_SECONDS)
    if done.code:
        raise LlmbError(f"MariaDB's data folder cannot be made: {done.err.strip()}")
