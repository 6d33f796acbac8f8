# SPDX-License-Identifier: Apache-2.0
"""Tests of what a job gets and does: variables as they were given, ranks in their places, secrets
seen nowhere.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmb.contract.launch import StagedFile, Wrapper
from llmb.core import permissions

Site = Any  # the class is in conftest.py

HARD = {
    "SPACES": "  two  words ",
    "QUOTES": """a'b"c`d""",
    "DOLLAR": "$HOME ${HOME} $(hostname) \\n \\",
    "EMPTY": "",
    "LINES": "first\n#SBATCH --nodes=99\nlast\n",
    "ENDS": "carriage\r\nreturn\ttab\x01",
    "NON_ASCII": "größe 東京 🚀",
    "lower_case": "a",
    "MixedCase": "b",
    "log": "own",
    "run": "own",
    "code": "5",
    "COMMA": "a,b=c;d&e|f<g>h!*?[x]",
    "PERCENT": "%j %% %",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
}
DUMP = (
    "import json, os\nopen('env.' + os.environ['LLMB_RANK'],"
    " 'w').write(json.dumps(dict(os.environ)))\n"
)


def environment(site: Site, run: Any, rank: int = 0) -> dict[str, str]:
    found: dict[str, str] = json.loads(site.text(run, f"env.{rank}"))
    return found


def test_variables_arrive_as_they_were_given(site: Site) -> None:
    run = site.submit(DUMP, environment=HARD)
    site.ends(run)
    got = environment(site, run)
    assert {name: got.get(name) for name in HARD} == HARD


def test_a_folder_may_have_any_name(kit: Any, site_at: Callable[..., Site]) -> None:
    site = site_at(kit, 'in st\'all %j "x" $HOME größe')
    run = site.submit(
        DUMP + "print('trained')", files=(StagedFile(name="conf/a'b.txt", text="x\r\n'y'"),)
    )
    site.ends(run)
    assert run.log.read_text() == "trained\n"
    assert run.batch_log.exists()
    assert (run.work / "conf/a'b.txt").read_bytes() == b"x\r\n'y'"
    assert Path(environment(site, run)["PWD"]) == run.work


@pytest.mark.fault("users")
@pytest.mark.parametrize(("mode", "umask"), [(0o2775, 0o077), (0o700, 0o022)])
def test_what_a_job_writes_has_the_permissions_of_its_install(
    mode: int, umask: int, site: Site
) -> None:
    site.install.chmod(mode)
    permissions.mode_of_install.cache_clear()
    before = os.umask(umask)
    try:
        run = site.submit("import os\nopen('own', 'w').close()\nos.mkdir('folder')")
    finally:
        os.umask(before)
    site.ends(run)
    wrote = [
        run.work / "own",
        run.log,
        run.batch_log,
        run.place / "scheduler_id",
        run.place / "ended",
    ]
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in wrote} == {
        path.name: oct(mode & 0o666) for path in wrote
    }
    assert (run.work / "folder").stat().st_mode & 0o777 == mode & 0o777


def test_ranks_know_their_places(site: Site) -> None:
    wrapper = Wrapper(
        name="bind", argv=("bash", "-c", 'export BOUND=$((LLMB_LOCAL_RANK / 2)); exec "$@"', "_")
    )
    run = site.submit(DUMP, nodes=2, ranks_per_node=3, wrappers=(wrapper,))
    site.ends(run)
    seen = [environment(site, run, rank) for rank in range(6)]
    names = (
        "LLMB_RANK",
        "RANK",
        "LLMB_NODE_RANK",
        "LLMB_LOCAL_RANK",
        "LOCAL_RANK",
        "BOUND",
        "WORLD_SIZE",
    )
    assert [tuple(int(one[name]) for name in names) for one in seen] == [
        (rank, rank, rank // 3, rank % 3, rank % 3, rank % 3 // 2, 6) for rank in range(6)
    ]
    assert {one["MASTER_ADDR"] for one in seen} == {site.kit.location.host}
    assert {int(one["MASTER_PORT"]) for one in seen} == {20000 + int(run.scheduler_id) % 10000}
    assert {len(one["CUDA_VISIBLE_DEVICES"].split(",")) for one in seen} == {8}
    assert all(int(one["OMP_NUM_THREADS"]) >= 1 for one in seen)
    assert {one["LLMB_RUN_ID"] for one in seen} == {run.id}


def test_jobs_do_not_share_a_meeting_point(site: Site) -> None:
    runs = [site.submit(DUMP) for _ in range(2)]
    for run in runs:
        site.ends(run)
    assert len({environment(site, run)["MASTER_PORT"] for run in runs}) == 2


def test_nothing_of_the_submitting_shell_but_what_was_named(
    site_at: Callable[..., Site], kit: Any
) -> None:
    """Also within an allocation, whose variables would reach sbatch and srun."""
    site = site_at(kit, pass_environment=["WANTED"])
    around = {
        "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS": "99",
        "SLURM_NNODES": "3",
        "SBATCH_EXPORT": "NONE",
        "WANTED": "w x",
        "SBATCH_TIMELIMIT": "1",
        "SBATCH_JOB_NAME": "other",
        "SLURM_EXPORT_ENV": "NONE",
        "STRANGER": "s",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_CPU_BIND": "map_cpu:999",
        "SBATCH_WAIT": "1",
    }
    cluster = site.cluster(environ=around)
    run = site.submit(DUMP, cluster=cluster)
    site.ends(run, cluster=cluster)
    got = environment(site, run)
    assert (got["SLURM_JOB_ID"], got["SLURM_NTASKS"], got["WANTED"]) == (
        run.scheduler_id,
        "1",
        "w x",
    )
    assert not {"STRANGER", "SBATCH_EXPORT", "SBATCH_WAIT", "SLURM_TIME_FORMAT"} & set(got)
    assert {"PATH", "HOME", "USER", "LANG", "SLURM_CONF"} <= set(got)


def test_secrets_reach_the_ranks_and_nothing_else(site: Site, home: Path) -> None:
    exported, kept = "tok-7d1f93 a'b", "kept-55e0c2"
    (home / ".config/llmb").mkdir(parents=True)
    (home / ".config/llmb/secrets").write_text(f"# mine\nNGC_API_KEY={kept}\n")
    (home / ".config/llmb/secrets").chmod(0o600)
    program = (
        "import os, time\nassert os.environ['HF_TOKEN'] == \"tok-7d1f93 a'b\"\n"
        "assert os.environ['NGC_API_KEY'][:4] == 'kept'\nopen('started', 'w').write('x')\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    cluster = site.cluster(environ={"HF_TOKEN": exported})
    run = site.submit(program, cluster=cluster, secrets=("HF_TOKEN", "NGC_API_KEY"))
    site.text(run, "started")
    words = [" ".join(_argv(process)) for process in psutil.process_iter()]
    assert not [word for word in words if "7d1f93" in word or "55e0c2" in word]
    (run.work / "go").touch()
    site.ends(run)
    for path in site.install.rglob("*"):
        if path.is_file() and not path.name.startswith("program"):
            assert b"7d1f93" not in path.read_bytes(), path
            assert b"55e0c2" not in path.read_bytes(), path
    shown = site.kit.run("scontrol", "show", "job", run.scheduler_id)
    assert "7d1f93" not in shown


def _argv(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import os, sys, time\nif os.environ['RANK'] == '2': sys.exit(7)\ntime.sleep(300)", 7),
        (
            (
                "import os, time\nif os.environ['RANK'] == '2': os.kill(os.getpid(),"
                " 9)\ntime.sleep(300)"
            ),
            137,
        ),
        ("import os, time\nif os.environ['RANK'] == '2': os.abort()\ntime.sleep(300)", 134),
    ],
)
def test_one_rank_that_fails_ends_the_job_with_its_code(
    site: Site, program: str, code: int
) -> None:
    run = site.submit(program, nodes=2, ranks_per_node=2)
    assert site.ends(run, "FAILED").exit_code == code, site.all_of(run)
    assert "task 2" in run.log.read_text()


def test_a_run_that_was_submitted_twice_runs_once(site: Site) -> None:
    first = site.submit(
        "import os, time; print('mine', flush=True)\nwhile not os.path.exists('go'):"
        " time.sleep(0.05)"
    )
    site.begins(first)
    second = site.kit.run("sbatch", "--parsable", str(first.script)).strip()
    site.says(
        first, f"this run is job {first.scheduler_id}; job {second} is one too many and ends here"
    )
    (first.work / "go").touch()
    site.ends(first)
    assert first.log.read_text() == "mine\n"
    assert (first.place / "scheduler_id").read_text().splitlines()[0] == first.scheduler_id


def test_the_scripts_are_sound_bash(site: Site) -> None:
    run = site.record(site.launch("", environment=HARD))
    subprocess.run(["bash", "-n", run.script], check=True)
