# SPDX-License-Identifier: Apache-2.0
"""Tests of names and addresses in texts: hosts by NCCL's, Slurm's and torchrun's forms, users by
paths, no more.
"""

import pytest

from llmb.show.archive.names import homes_in, hosts_in, users_in
from llmb.show.archive.redact import Addresses


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu17:4321:4321 [0] NCCL INFO Bootstrap : Using eth0:10.31.7.17<0>", {"gpu17"}),
        ("[default0]:n1.site.org:812:900 [7] NCCL WARN x", {"n1.site.org"}),
        ("0: \x1b[32mgpu-3:1:2 [0] NCCL INFO x", {"gpu-3"}),
        ("MASTER_ADDR=gpu18.corp.example.com", {"gpu18.corp.example.com"}),
        ('export SLURM_JOB_NODELIST="gpu[07-08],login1"', {"gpu07", "gpu08", "login1"}),
        ("SLURMD_NODENAME=n3 HOSTNAME=n4 SLURM_SUBMIT_HOST=front", {"n3", "n4", "front"}),
        ('{"MASTER_ADDR": "gpu18", "rank": 1}', {"gpu18"}),
        ("Namespace(master_addr='gpu18', x=1)", {"gpu18"}),
        ("torchrun --master_addr gpu18 --rdzv-endpoint=gpu19:29500 x", {"gpu18", "gpu19"}),
        ("   NodeList=n[1-2]\n   BatchHost=n1 NodeHostName=n2", {"n1", "n2"}),
        (
            (
                "srun: error: big102: task 3: Exited\nslurmstepd-fat9: error\nerror: *** JOB 8 ON"
                " n7 CANCELLED ***"
            ),
            None,
        ),
        ("  host      : gpu20.corp", {"gpu20.corp"}),
        ("The client socket has failed to connect to [gpu21]:29500", {"gpu21"}),
        ("timed out after 600s while trying to connect to (gpu-d02, 29500).", {"gpu-d02"}),
        ("[gpu-f01:12345] *** Process received signal ***", {"gpu-f01"}),
        ("rank 3 with PID 0 on node gpu-f02 exited on signal 9", {"gpu-f02"}),
        ("init_method tcp://gpu-e01:29500", {"gpu-e01"}),
        ('llmb node gpu22: {"gpus": 8}\n8: llmb telemetry gpu23: {"gpus": 8}', {"gpu22", "gpu23"}),
        ('{"telemetry":1,"host":"gpu24","first_node":true,"gpus":8}', {"gpu24"}),
        ("MASTER_ADDR=127.0.0.1 MASTER_ADDR=$(hostname) HOSTNAME=localhost NodeList=(null)", set()),
        ("hostname: command not found; srun: error: Unable to create step", set()),
        ("NodeList=NODES HOSTNAME=is --nodelist LIST --nodelist=NODES connect to it:80", set()),
        ("the host: port; Using network IB; [0] NCCL INFO", set()),
    ],
)
def test_hosts_by_the_forms_of_their_lines(text: str, hosts: set[str] | None) -> None:
    assert hosts_in(text) == ({"big102", "fat9", "n7"} if hosts is None else hosts)


def test_users_by_paths_and_variables() -> None:
    assert homes_in(
        "/home/bob/x /lustre/users/eve, /home/shared /home/ /homework/x /nfs/home/jo.e"
    ) == {
        "bob",
        "eve",
        "jo.e",
    }
    assert users_in(
        "USER=bob LOGNAME='eve' UserId=joe(1000) SLURM_JOB_USER=ana USER=root A_USER=b"
    ) == {
        "bob",
        "eve",
        "joe",
        "ana",
    }


def test_the_same_address_becomes_the_same() -> None:
    own = Addresses()
    first = own.replace("eth0:10.31.7.17<0> tcp://10.31.7.18:29500, 10.31.7.17. 10.0.0.0/8")
    assert first == "eth0:198.18.0.1<0> tcp://198.18.0.2:29500, 198.18.0.1. 198.18.0.3/8"
    assert own.replace("10.31.7.18") == "198.18.0.2"
    six = own.replace("eth0:fe80::a288:c2ff:fe12:3456%eth0<0> [FE80:0:0:0:A288:C2FF:FE12:3456]:80")
    assert six.count("2001:db8::4") == 2
    assert "a288" not in six.lower()


@pytest.mark.parametrize(
    "text",
    [
        "ssh alice@10.99.0.3",
        "scp root@10.99.0.3:/x .",
        "NCCL_COMM_ID=10.99.0.3:29500",
        "NCCL_IB_ADDR: 10.99.0.3",
        "gpu01/10.99.0.3:29500",
        "10.99.0.3-10.99.0.3",
        "CUDA_HOST=10.99.0.3",
        "driver_host=10.99.0.3",
        '"libfabric_addr":"10.99.0.3"',
        "http://git@10.99.0.3/x.git",
        "node_10.99.0.3.log",
        "10.99.0.3_eth0",
        r'"peers:\n10.99.0.3"',
        "release 10.99.0.3",
        "version of 10.99.0.3",
    ],
)
def test_an_address_is_replaced_whatever_is_beside(text: str) -> None:
    assert Addresses().replace(text) == text.replace("10.99.0.3", "198.18.0.1")


@pytest.mark.parametrize(
    "line",
    [
        "127.0.0.1:80 0.0.0.0 ::1 :: 255.255.255.0",
        (
            "nvidia-cudnn-cu12==9.1.0.70 cudnn-9.1.0.70 libcudnn.so.9.1.0.70 CUDNN_VERSION=9.1.0.70"
            " v9.1.0.70"
        ),
        '"version": "12.4.5.8", "nvidia-cublas-cu12": "12.4.5.8" nvidia/cudnn/9.1.0.70/lib',
        r"{\"version\": \"12.4.5.8\"} NCCL version 2.21.5.1 opencv-python==4.10.0.84 x>=1.2.3.4",
        "12:34:56 2025-11-23 00:42:17.123 [11:22:33] 1.2.3 1.2.3.4.5 999.1.1.1",
        "x[::2] x[1::2] x[1000::20] {64::8}",
        "aa:bb:cc:dd:ee:ff 0000:3b:00.0 c10::Error std::vector<at::Tensor> torch::autograd::Node",
        "SHA256:abcdef0123 16:27:ac:a5:76:28:2d:36:63:1b:56:4d:eb:df:a6:48",
        "Training epoch 0, iteration 49/49 | reduced_train_loss: 11.96 | consumed_samples: 6400",
    ],
)
def test_what_is_no_address_stays(line: str) -> None:
    assert Addresses().replace(line) == line
