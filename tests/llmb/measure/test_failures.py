# SPDX-License-Identifier: Apache-2.0
"""Tests that each kind of failure is reported from its own log, and from no other's."""

import errno
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from llmb.contract.failures import Failure
from llmb.contract.state import JobState
from llmb.measure.failure_causes import Cause, group_failures, kind_of_end, table
from llmb.measure.root_cause import root_cause
from llmb_workloads.fields import RefusedError
from llmb_workloads.torch_pretrain import check_versions

TRACE = (
    "node1:101:203 [7] NCCL INFO AllReduce: opCount 2 sendbuff 0x7f00 recvbuff 0x7f00 count 1"
    " datatype 1 op 0 root 0 comm 0x5500 [nranks=128] stream 0x5600"
)
STEP = (
    "Training epoch 0, iteration 3/49 | reduced_train_loss: 11.96 | train_step_timing in s: 12.39\n"
)
CONSEQUENCES = """\
srun: error: node1: task 3: Exited with exit code 1
srun: Terminating StepId=389757.0
slurmstepd: error: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: node2: task 9: Killed
BrokenPipeError: [Errno 32] Broken pipe
"""
NOISE = """\
sudo: a terminal is required to read the password
NCCL INFO NET/Plugin: Could not find: libnccl-net.so
[W socket.cpp:752] [c10d] The IPv6 network addresses of (node1, 29500) cannot be retrieved: client socket has timed out
[rank0]:[W ProcessGroupNCCL.cpp] Warning: destroy_process_group() was not called before program exit
node1:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>
cp: cannot stat 'x': No such file or directory
loading weights: vocabulary is padded to be divisible by 128
"""
TRACEBACK = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/opt/train.py", line 7, in <module>
[rank4]: something of another rank
[rank3]:     main()
[rank3]: {}
"""
OOM = "GPU out of memory"
LOGS = {
    OOM: "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "GPU architecture": "ptxas fatal : Value 'sm_103a' is not defined for option 'gpu-name'",
    "locked memory": (
        "node1:1:2 [0] NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
    ),
    "shared memory": (
        "node1:1:2 [0] NCCL WARN Error: failed to extend /dev/shm/nccl-4sTbWG to 33030532 bytes:"
        " No space left on device"
    ),
    "open files": "OSError: [Errno 24] Too many open files: '/data/train.idx'",
    "launcher variables": (
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment"
        " variable MASTER_ADDR expected, but not set"
    ),
    "Gloo": "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144]",
    "releases differ": (
        "TypeError: TransformerConfig.__init__() got an unexpected keyword argument 'moe_router_x'"
    ),
    "host out of memory": "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.",
    "GPU hardware": "kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.",
    "NCCL hang": (
        "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)"
    ),
    "NCCL error": (
        "node1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2 with status=12 opcode=0"
        " len=0"
    ),
    "rendezvous": (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms"
    ),
    "crash": "[node1:123] *** Process received signal *** Segmentation fault (11)",
    "numeric": STEP.replace("11.96", "nan").strip(),
    "NUMA binding": "libnuma: Warning: node argument 4 is out of range",
    "wrong configuration": (
        "RuntimeError: world_size (16) is not divisible by expert_tensor_model size (64)"
    ),
    "image": "pyxis: [ERROR] No such file or directory: /lustre/images/nvidia+nemo+25.04.01.sqsh",
    "userbuffers": (
        "Exception: Tensor parallel overlap: userbuffer initialization failed with: CUDA Error"
    ),
    "missing package": (
        "llmb error: nemo_toolkit (not installed): module 'nemo' is not there; run in NeMo's image"
    ),
    "Nsight Systems": (
        "llmb error: a profile was asked for, and nsys is not here; use an image or a node with it"
    ),
    "server": (
        "llmb error: the server of rank 0 was not ready after 60 s; the end of its output in"
        " server-0.out:"
    ),
    "refused": "llmb error: recipe.seed: is -1; choose one from 0 to 2^63 - 1",
    "program": "llmb error: nosuchprog cannot be started: No such file or directory",
    "container mount": (
        "slurmstepd: error: pyxis: --container-mounts: source path does not exist: /data"
    ),
    "image compression": "Filesystem uses zstd compression, this is unsupported by this version",
    "container": "slurmstepd: error: pyxis: [ERROR] Command not found: unsquashfs",
    "read-only file system": "OSError: [Errno 30] Read-only file system: '/home/me/.triton'",
    "MPI plugin": "srun: error: cannot find mpi plugin for mpi/pmix",
    "Hugging Face": "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1)",
    "disk": "OSError: [Errno 28] No space left on device: '/lustre/x'",
    "time limit": (
        "slurmstepd: error: *** JOB 389757 ON node1 CANCELLED AT 2025-04-11T14:48:45 DUE TO TIME"
        " LIMIT ***"
    ),
    "preempted": (
        "slurmstepd: error: *** JOB 389757 ON node1 CANCELLED AT 2025-04-11T14:48:45 DUE TO"
        " PREEMPTION ***"
    ),
    "node failure": (
        "slurmstepd: error: *** JOB 389757 ON node1 CANCELLED AT 2025-04-11 DUE TO NODE FAILURE ***"
    ),
    "deadline": (
        "slurmstepd: error: *** JOB 389757 ON node1 CANCELLED AT 2025-04-11T14:48:45 DUE TO"
        " DEADLINE ***"
    ),
    "cancelled": "slurmstepd: error: *** JOB 389757 ON node1 CANCELLED AT 2025-04-11T14:48:45 ***",
    "submit refused": "sbatch: error: Invalid account or account/partition combination specified",
    "job output": "the node could not open the job's output file /shared/job/sbatch_job.out",
    "Run:ai": "Warning Failed kubelet Error: ImagePullBackOff",
    "Python": "ModuleNotFoundError: No module named 'nemo'",
}


@pytest.mark.parametrize(
    "line",
    [  # of bash 5.2 and Slurm 23.11
        "_: line 1: exec: nosuchprog: not found",
        "_: line 1: exec: ./x: cannot execute: Permission denied",
        "slurmstepd: error: execve(): nosuchprog: No such file or directory",
    ],
)
def test_a_program_that_is_not_there(line: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path, f"{line}\n{CONSEQUENCES}") == "program"


def cause_of(folder: Path, text: str | bytes) -> Cause | None:
    path = folder / "log.out"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return root_cause([path])


def reported(folder: Path, text: str) -> tuple[str, str, int | None]:
    cause = cause_of(folder, text)
    assert cause is not None
    return cause.kind, cause.line, cause.rank


def kind_of(folder: Path, text: str) -> str | None:
    cause = cause_of(folder, text)
    return cause.kind if cause else None


def test_every_row_of_the_table_has_a_log_here() -> None:
    assert {row.kind for row in table().causes} | {"Python"} == set(LOGS)


@pytest.mark.parametrize(("kind", "line"), LOGS.items())
def test_a_log_tells_its_kind_and_its_line(tmp_path: Path, kind: str, line: str) -> None:
    assert reported(tmp_path, STEP + NOISE + line + "\n" + CONSEQUENCES)[:2] == (kind, line)


def test_each_row_fits_no_log_of_its_neighbours() -> None:
    rows = table().causes
    assert rows[-1].kind == "refused"  # takes what the rows before leave
    for row in rows[:-1]:
        fits = {kind for kind, line in LOGS.items() if row.fits(line.encode())}
        assert fits <= {row.kind}, row


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        # NCCL's src/misc/ibvwrap.cc and shmutils.cc
        (
            "[0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
            "locked memory",
        ),
        (
            "Error while creating shared memory segment /dev/shm/nccl-cjY8K5 (size 10617216), error:"
            " No space left on device (28)",
            "shared memory",
        ),
        # torch's DataLoader, MapAllocator and Python's multiprocessing/reduction.py
        (
            "RuntimeError: DataLoader worker (pid 271) is killed by signal: Bus error. It is possible"
            " that dataloader's workers are out of shared memory.",
            "shared memory",
        ),
        (
            "RuntimeError: unable to open shared memory object </torch_52868_19501> in read-write"
            " mode: Too many open files (24)",
            "open files",
        ),
        ("RuntimeError: received 0 items of ancdata", "open files"),
        # torch's rendezvous.py, ProcessGroupGloo.cpp and TCPStore.cpp
        ("environment variable RANK expected, but not set", "launcher variables"),
        (
            "[E ProcessGroupGloo.cpp:138] Gloo connectFullMesh failed with"
            " [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
            "Gloo",
        ),
        (
            "torch.distributed.DistStoreError: Timed out after 1201 seconds waiting for clients."
            " 511/512 clients joined.",
            "rendezvous",
        ),
        ("wait timeout after 600000ms, keys: /default_pg/0//worker_count", "rendezvous"),
        # Slurm's mpi_pmix.c and slurm_mpi.c, 25.05 and 20.11
        (
            "srun: error:  mpi/pmix_v5: init: (null) [0]: mpi_pmix.c:193: pmi/pmix: can not load PMIx library",
            "MPI plugin",
        ),
        ("srun: error: Invalid MPI type 'pmix_v5', --mpi=list for acceptable types", "MPI plugin"),
        (
            'srun: error: "--mpi=pmix" -- long invalid MPI type, --mpi=list for acceptable types.',
            "MPI plugin",
        ),
        (
            "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
            "GPU architecture",
        ),
        # Transformer Engine's userbuffers.cu
        ("[3] Allreduce reduce-scatter: SM 0 [1]: expecting 1 got 0", "userbuffers"),
        (
            "TypeError: GPTConfig.__init__() got an unexpected keyword argument 'a'",
            "releases differ",
        ),
    ],
)
def test_what_users_met_has_a_cause_as_the_project_prints_the_line(
    line: str, kind: str, tmp_path: Path
) -> None:
    assert kind_of(tmp_path, f"{STEP}{line}\n{CONSEQUENCES}") == kind
    assert Cause(kind=kind, line=line).fix


PYXIS = "slurmstepd: error: pyxis: "


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        # As pyxis 0.24 and enroot 4 print them, the general line before the one that tells.
        (
            [
                "child 7 failed with error code: 1",
                "failed to create container filesystem for image: /i/a.sqsh",
                "printing enroot log file:",
                "    [ERROR] No such file or directory: /i/a.sqsh",
            ],
            "image",
        ),
        (
            [
                "failed to create container filesystem for image: /i/a.sqsh",
                "printing enroot log file:",
                "    [ERROR] Invalid image format: /i/a.sqsh",
            ],
            "image",
        ),
        (
            [
                "failed to create container filesystem for image: /i/a.sqsh",
                "printing enroot log file:",
                "    [INFO] Extracting squashfs filesystem...",
                "    Filesystem uses zstd compression, this is unsupported by this version",
            ],
            "image compression",
        ),
        (
            [
                "failed to create container filesystem for image: /i/a.sqsh",
                "    Write on output file failed because No space left on device",
            ],
            "container",
        ),
        (
            [
                "--container-mounts: source path does not exist: /data",
                "couldn't create enroot start configuration script",
            ],
            "container mount",
        ),
        (
            [
                "container start failed with error code: 1",
                "printing enroot log file:",
                "    enroot-mount: failed to mount: /data at /x/pyxis_7.0/data: No such file",
            ],
            "container mount",
        ),
        (["container start failed with error code: 1"], "container"),
    ],
)
def test_what_pyxis_and_enroot_print(lines: list[str], kind: str, tmp_path: Path) -> None:
    text = "".join(f"{PYXIS}{line}\n" for line in lines)
    assert kind_of(tmp_path, text + CONSEQUENCES) == kind


@pytest.mark.parametrize(
    "line",
    [
        "torch_pretrain: error: transformers: is not installed; install transformers 5.6 or newer",
        "torch_pretrain: error: transformers 4.48: is too old; install transformers 5.6 or newer",
    ],
)
def test_what_our_programs_say_of_packages(line: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path, f"{line}\n{CONSEQUENCES}") == "missing package"


def test_a_weak_cause_gives_way_to_a_python_error(tmp_path: Path) -> None:
    text = f"{PYXIS}container exited too soon\nModuleNotFoundError: No module named 'x'\n"
    assert kind_of(tmp_path, text) == "Python"


def test_each_class_has_a_fix() -> None:
    ends = {*table().states.values(), *table().exit_codes.values()}
    kinds = {row.kind for row in table().causes} | {"Python", "killed"}
    assert set(table().fixes) == kinds
    assert ends <= kinds
    for kind in kinds:
        assert len(Cause(kind=kind, line="").fix) > 20
    assert Cause(kind="newer", line="").fix == ""


@pytest.mark.parametrize("row", table().causes, ids=lambda row: f"{row.kind}: {row.text[0]}")
def test_each_text_of_a_row_is_enough_and_beside_is_needed(tmp_path: Path, row: Failure) -> None:
    for text in row.text:
        for beside in row.beside or ("",):
            line = f"error: {text} x {beside} \n"
            assert kind_of(tmp_path, STEP + line) == row.kind
        if row.beside:
            assert not row.fits(f"error: {text} x".encode())


@pytest.mark.parametrize(
    "text", ["", STEP, CONSEQUENCES, NOISE, "\n".join([NOISE, STEP, CONSEQUENCES])]
)
def test_consequences_and_noise_are_no_cause(tmp_path: Path, text: str) -> None:
    assert cause_of(tmp_path, text) is None


def test_the_earliest_cause_counts(tmp_path: Path) -> None:
    kinds = [kind for kind in LOGS if kind not in ("Python", "server")]  # server: weak
    for kind, other in zip(kinds, kinds[1:] + kinds[:1], strict=True):
        assert kind_of(tmp_path, f"{LOGS[kind]}\n{NOISE}{LOGS[other]}\n") == kind
        assert kind_of(tmp_path, f"{LOGS[other]}\n{NOISE}{LOGS[kind]}\n") == other


@pytest.mark.parametrize(
    "installed", [{}, {"torch": "2.13.0", "transformers": "5.3.0"}], ids=["none", "too old"]
)
def test_what_the_torch_program_says_of_its_libraries_is_known(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    def version_of(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    with pytest.raises(RefusedError) as refused:
        check_versions(version_of)
    assert kind_of(tmp_path, f"error: {refused.value}\n") == "missing package"


def test_in_one_line_the_order_of_the_table_decides(tmp_path: Path) -> None:
    line = (
        "torch.distributed.DistBackendError: ncclUnhandledCudaError: Cuda failure 2 'out of memory'"
    )
    assert kind_of(tmp_path, line) == OOM


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [("", None), ("[rank3]: ", 3), ("[default3]:[rank11]: ", 11), ("3: ", 3), ("[default5]:", 5)],
)
def test_the_last_line_of_a_traceback(tmp_path: Path, prefix: str, rank: int | None) -> None:
    text = "".join(
        f"{prefix}{line}\n"
        for line in [
            "Traceback (most recent call last):",
            "  File 'x'",
            "    f()",
            "ValueError: bad",
        ]
    )
    assert cause_of(tmp_path, text + CONSEQUENCES) == Cause(
        kind="Python", line="ValueError: bad", rank=rank
    )


def test_a_traceback_among_other_ranks_text(tmp_path: Path) -> None:
    assert cause_of(tmp_path, TRACEBACK.format("KeyError: 'x'")) == Cause(
        kind="Python", line="KeyError: 'x'", rank=3
    )


def test_a_traceback_with_text_glued_before_it(tmp_path: Path) -> None:
    text = "epoch 0 Traceback (most recent call last):\n  File 'x'\n    f()\nKeyError: 'x'\n"
    assert cause_of(tmp_path, text) == Cause(kind="Python", line="KeyError: 'x'")


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "3: ", "[default3]:[rank3]: "])
@pytest.mark.parametrize("between", ["", "\n", "[rank4]: of another\n"])
def test_an_exception_whose_text_begins_on_the_next_line(
    tmp_path: Path, prefix: str, between: str
) -> None:
    lines = [
        "Traceback (most recent call last):",
        "  File 'x'",
        "ValueError: ",
        "  Invalid log settings: garbage",
    ]
    if not prefix:
        between = between.replace("[rank4]: of another", " ")
    text = "".join(f"{between if line == lines[-1] else ''}{prefix}{line}\n" for line in lines)
    error = "ValueError: Invalid log settings: garbage"
    assert reported(tmp_path, text + CONSEQUENCES)[:2] == ("Python", error)


@pytest.mark.parametrize(
    "behind", ["", CONSEQUENCES, "[rank4]: of another\n", LOGS["disk"] + "\n", TRACEBACK]
)
def test_an_exceptions_text_is_nothing_that_others_say(tmp_path: Path, behind: str) -> None:
    text = (
        "Traceback (most recent call last):\n  File 'x'\nRuntimeError: in loading the state of"
        " GPT:\n"
    )
    line = (
        "OSError: [Errno 28] No space left on device: '/lustre/x'"
        if LOGS["disk"] in behind
        else text.splitlines()[2]
    )
    assert reported(tmp_path, text + behind)[1] == line


def test_a_traceback_in_a_frame(tmp_path: Path) -> None:
    text = (
        "╭── Traceback (most recent call last) ──╮\n│ /opt/x.py:3 in f │\n╰──────╯\nKeyError: 'x'\n"
    )
    assert cause_of(tmp_path, text) == Cause(kind="Python", line="KeyError: 'x'")


def test_a_traceback_that_is_cut_off(tmp_path: Path) -> None:
    assert cause_of(tmp_path, TRACEBACK.split("[rank3]: {}")[0]) is None


def test_the_launchers_own_traceback_is_a_consequence(tmp_path: Path) -> None:
    launcher = TRACEBACK.format(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    )
    signalled = TRACEBACK.format("torch...api.SignalException: Process 7 got signal: 15")
    assert (cause_of(tmp_path, launcher), cause_of(tmp_path, signalled)) == (None, None)
    assert kind_of(tmp_path, LOGS["disk"] + "\n" + launcher) == "disk"


@pytest.mark.parametrize("before", ["preempted", "GPU out of memory", "Python", "NCCL hang"])
def test_the_cause_is_that_of_the_last_attempt(tmp_path: Path, before: str) -> None:
    first = STEP.replace("3/49", "0/49") + STEP + LOGS[before] + "\n"
    again = STEP.replace("3/49", "0/49") + STEP
    assert kind_of(tmp_path, first) == before
    assert kind_of(tmp_path, first + again) is None
    assert kind_of(tmp_path, first + again + LOGS["disk"] + "\n") == "disk"
    assert kind_of(tmp_path, first + LOGS["numeric"].replace("3/49", "0/49") + "\n") == "numeric"
    assert kind_of(tmp_path, first + LOGS["disk"] + "\n") == (
        before if before != "Python" else "disk"
    )


def test_a_python_error_yields_to_a_specific_cause(tmp_path: Path) -> None:
    text = TRACEBACK.format("ImportError: optional thing") + STEP * 100 + LOGS["GPU out of memory"]
    assert kind_of(tmp_path, text) == OOM


@pytest.mark.parametrize(
    "before",
    ["[NeMo W 2025-04-11 14:46:18 nemo_logging:405] ", "WARNING: ", "x.py:3: UserWarning: "],
)
def test_a_module_that_is_gone_on_without_is_no_cause(tmp_path: Path, before: str) -> None:
    warned = f"{before}ModuleNotFoundError: No module named 'apex'\n{STEP}"
    assert cause_of(tmp_path, warned) is None
    assert kind_of(tmp_path, warned + LOGS["NCCL hang"]) == "NCCL hang"
    assert kind_of(tmp_path, warned + LOGS["Python"]) == "Python"
    raised = TRACEBACK.format("DeprecationWarning: x is an error here")
    assert kind_of(tmp_path, raised) == "Python"


def test_a_python_error_is_the_cause_of_the_hang_that_follows(tmp_path: Path) -> None:
    text = TRACEBACK.format("ValueError: bad") + STEP * 100 + LOGS["NCCL hang"]
    assert cause_of(tmp_path, text) == Cause(kind="Python", line="ValueError: bad", rank=3)


ABORTED = """\
srun: error: node1: task 3: Exited with exit code 1
srun: Terminating StepId=389757.0
slurmstepd: error: *** STEP 389757.0 ON node1 CANCELLED AT 2025-04-11T14:48:45 ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
"""


@pytest.mark.parametrize("prefix", ["", "[rank7]: ", "7: ", "[default7]:[rank7]: "])
def test_a_python_error_is_the_cause_of_what_others_say_at_once(
    tmp_path: Path, prefix: str
) -> None:
    """No line is between them in a log: the others wait for ten minutes, and then all print."""
    lines = ["Traceback (most recent call last):", "  File 'x'", "KeyError: 'x'"]
    others = [
        f"[rank{rank}]: {line}\n"
        for rank in range(3)
        for line in (LOGS["NCCL hang"], "ncclRemoteError: failed")
    ]
    text = "".join(f"{prefix}{line}\n" for line in lines) + "".join(others) + ABORTED
    assert kind_of(tmp_path, text) == "Python"
    assert kind_of(tmp_path, text.replace(LOGS["NCCL hang"], "")) == "Python"


def test_a_step_that_a_failed_rank_ended_was_not_cancelled(tmp_path: Path) -> None:
    assert kind_of(tmp_path, STEP + ABORTED) is None
    assert kind_of(tmp_path, TRACEBACK.format("KeyError: 'x'") + ABORTED) == "Python"
    by_hand = "".join(
        line for line in ABORTED.splitlines(keepends=True) if "Terminating" not in line
    )
    assert kind_of(tmp_path, STEP + by_hand) == "cancelled"
    assert kind_of(tmp_path, STEP + ABORTED + LOGS["cancelled"]) == "cancelled"


def test_an_exceptions_further_lines_belong_to_it(tmp_path: Path) -> None:
    text = (
        TRACEBACK.format("torch.distributed.DistBackendError: NCCL error")
        + "[rank3]: ncclRemoteError: A call failed\n"
    )
    assert kind_of(tmp_path, text) == "NCCL error"


def test_what_nccl_says_last_is_why_it_failed(tmp_path: Path) -> None:
    lines = [
        (
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled cuda"
            " error, NCCL version 2.21"
        ),
        "ncclUnhandledCudaError: Call to CUDA function failed.",
        "Last error:",
        "Cuda failure 2 'out of memory'",
    ]
    text = "Traceback (most recent call last):\n  File 'x'\n" + "\n".join(lines) + "\n"
    assert reported(tmp_path, text)[:2] == (OOM, lines[-1])
    prefixed = "".join(f"[rank7]: {line}\n" for line in text.splitlines())
    assert reported(tmp_path, prefixed)[0] == OOM
    other = text.replace(
        "Cuda failure 2 'out of memory'", "socketStartConnect: Connect to 10.0.0.2 failed"
    )
    assert kind_of(tmp_path, other) == "NCCL error"


def test_the_failed_rank_among_the_logs_of_all(
    tmp_path: Path, wording: Callable[..., None]
) -> None:
    paths = [tmp_path / f"rank{rank}.out" for rank in range(4)]
    for rank, path in enumerate(paths):
        path.write_text(f"[rank{rank}]: {LOGS['NCCL hang']}\n")
    paths[2].write_text(STEP + "".join(f"[rank2]: {LOGS['GPU hardware']}\n"))
    found = root_cause(paths)
    assert found is not None
    assert (found.kind, found.rank, found.log) == ("GPU hardware", 2, "rank2.out")
    paths[3].write_text(TRACEBACK.format("KeyError: 'x'"))
    paths[2].write_text(LOGS["NCCL hang"])
    found = root_cause(paths)
    assert found is not None
    assert (found.kind, found.rank, found.line) == ("Python", 3, "KeyError: 'x'")
    wording("results", str(found))
    assert root_cause([tmp_path / "none"]) is None
    alone = root_cause([paths[3], paths[3], tmp_path / "none"])
    assert alone is not None
    assert alone.log is None


def test_one_cause_of_many_runs_is_reported_once(wording: Callable[..., None]) -> None:
    image = [
        (f"a{n}", Cause(kind="image", line=f"No such file or directory: {n}.sqsh"))
        for n in range(7)
    ]
    python = [
        (f"b{n}", Cause(kind="Python", line=f"ValueError: bad size {n}", rank=n)) for n in range(2)
    ]
    other = ("c", Cause(kind="Python", line="KeyError: 'x'"))
    groups = group_failures([other, *python, *image])
    assert [len(group.runs) for group in groups] == [7, 2, 1]
    assert groups[0].cause.fix == table().fixes["image"]
    assert groups[1].runs == ("b0", "b1")
    wording("jobs list", f"{groups[0]}\n{groups[2]}")
    assert group_failures([]) == []


@pytest.mark.parametrize(
    "trace", [f"{TRACE}\n", f"{TRACE}\n" * 49 + STEP], ids=["trace alone", "with steps"]
)
def test_a_cause_in_the_midst_of_a_large_trace(tmp_path: Path, trace: str) -> None:
    before, after = trace * ((5 << 20) // len(trace)), trace * ((17 << 20) // len(trace))
    assert kind_of(tmp_path, f"{before}{LOGS['disk']}\n{after}") == "disk"
    assert kind_of(tmp_path, before) is None


def test_the_line_is_fit_to_be_shown(tmp_path: Path) -> None:
    cause = cause_of(
        tmp_path, b"\x1b[31mOSError: No space left on device\x1b[0m\x07 \xff" + b"x" * 3000
    )
    assert cause is not None
    assert cause.line.startswith(f"OSError: {os.strerror(errno.ENOSPC)}")
    assert cause.line.isprintable()
    assert len(cause.line) <= 300


def test_no_log(tmp_path: Path) -> None:
    assert root_cause([tmp_path / "none"]) is None
    assert root_cause([tmp_path]) is None


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED"])
def test_an_end_that_brought_about_what_the_log_tells(tmp_path: Path, state: str) -> None:
    path = tmp_path / "log.out"
    for follows in (
        LOGS["NCCL error"],
        LOGS["NCCL hang"],
        TRACEBACK.format("KeyError: 'x'"),
        STEP + ABORTED,
    ):
        path.write_text(follows + "\n")
        assert root_cause([path], JobState(state=state)) is None
    path.write_text(LOGS["GPU hardware"] + "\n")
    found = root_cause([path], JobState(state=state))
    assert found is not None
    assert found.kind == "GPU hardware"
    path.write_text(LOGS["NCCL hang"] + "\n")
    assert root_cause([path], JobState(state="FAILED")) is not None


@pytest.mark.parametrize(
    ("state", "code", "kind"),
    [
        ("OUT_OF_MEMORY", None, "host out of memory"),
        ("NODE_FAIL", None, "node failure"),
        ("BOOT_FAIL", None, "node failure"),
        ("TIMEOUT", None, "time limit"),
        ("PREEMPTED", None, "preempted"),
        ("REQUEUED", None, "preempted"),
        ("DEADLINE", None, "deadline"),
        ("FAILED", 134, "crash"),
        ("FAILED", 135, "crash"),
        ("CANCELLED", 137, "cancelled"),
        ("FAILED", 137, "killed"),
        ("FAILED", 139, "crash"),
        ("FAILED", 1, None),
    ],
)
def test_what_the_end_says_by_itself(state: str, code: int | None, kind: str | None) -> None:
    assert kind_of_end(JobState(state=state, exit_code=code)) == kind


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("ImagePullBackOff: Back-off pulling image", "Run:ai"),
        ("Unschedulable: 0/16 nodes are available", "Run:ai"),
        ("NonZeroExitCode", "killed"),
        ("", "killed"),
        ("oom_kill event", "host out of memory"),
    ],
)
def test_what_the_reason_of_an_end_says(reason: str, kind: str) -> None:
    assert kind_of_end(JobState(state="FAILED", reason=reason, exit_code=137)) == kind
    assert kind_of_end(JobState(state="NODE_FAIL", reason=reason)) == "node failure"


WORDS = [text.encode() for row in table().causes for text in (*row.text, *row.beside)]
PIECES = st.sampled_from(
    [*WORDS, b"Traceback (most recent call last)", b"\n", b"\r", b" ", b"[rank0]: ", b"\x1b[0m"]
)


@given(st.lists(PIECES | st.binary(max_size=6), max_size=30).map(b"".join))
def test_no_bytes_make_it_fail(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    cause = cause_of(tmp_path_factory.getbasetemp(), content)
    assert cause is None or cause.line.isprintable()


@pytest.mark.parametrize(
    ("line", "kind"),
    [  # as torch, Open MPI, Slurm, Transformer Engine, Triton and NCCL print them
        (
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 3/4"
            " clients joined.",
            "rendezvous",
        ),
        (
            "[rank1]:[W TCPStore.cpp:106] TCPStore wait timeout after 600000ms, keys: /default_pg/0",
            "rendezvous",
        ),
        (
            '"srun", but OMPI was not built with SLURM\'s PMI support and therefore cannot execute.',
            "MPI plugin",
        ),
        (
            "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files",
            "MPI plugin",
        ),
        ("UB: rank 3: expecting 1 got 0: is the peer there?", "userbuffers"),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "GPU architecture",
        ),
        (
            "RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error. It is possible"
            " that dataloader's workers are out of shared memory.",
            "shared memory",
        ),
        (
            "node1:1:2 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x"
            " (size 9637888)",
            "shared memory",
        ),
    ],
)
def test_causes_that_users_met(line: str, kind: str, tmp_path: Path) -> None:
    assert kind_of(tmp_path, STEP + NOISE + line + "\n" + CONSEQUENCES) == kind


def test_parse_prints_the_fix(tmp_path: Path, llmb_here: Callable[..., Any]) -> None:
    log = tmp_path / "x.log"
    log.write_text(STEP + LOGS["open files"] + "\n")
    done = llmb_here("parse", log)
    assert done.returncode == 3
    assert f"hint: open files: {table().fixes['open files']}" in done.stderr
