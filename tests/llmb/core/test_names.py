# SPDX-License-Identifier: Apache-2.0
"""Tests the spellings that users try, what is ambiguous, and which word is taken for the
nearest.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, strategies as st

from llmb.core.names import (
    apart,
    as_keys,
    find_size,
    find_workload,
    find_workload_and_size,
    nearest,
    shorter,
    squash,
    squash_workload,
    suggest,
)
from llmb.errors import UsageError, describe

SIZES = {
    "pretrain_nemotron4": ["15b", "340b", "tiny"],
    "pretrain_llama3.1": ["8b", "70b", "405b", "405b-proxy", "tiny"],
    "pretrain_nemotronh": ["56b", "tiny"],
}
KEYS = list(SIZES)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("pretrain_nemotron4", "pretrain_nemotron4"),
        ("nemotron4", "pretrain_nemotron4"),
        ("Nemotron-4", "pretrain_nemotron4"),
        ("nemotron-h", "pretrain_nemotronh"),
        ("nemotron_h", "pretrain_nemotronh"),
        ("pretrain_nemotron-h", "pretrain_nemotronh"),
        ("pretraining_nemotronh", "pretrain_nemotronh"),  # release 25.05 prints it so in two places
        ("PRETRAIN_NEMOTRONH", "pretrain_nemotronh"),
        ("llama3.1", "pretrain_llama3.1"),
        ("llama31", "pretrain_llama3.1"),
        ("pretrain_llama31", "pretrain_llama3.1"),  # as some logs of the release are named
        ("llama-3-1", "pretrain_llama3.1"),
        (" llama3.1 ", "pretrain_llama3.1"),
    ],
)
def test_spellings_of_a_workload(name: str, key: str) -> None:
    assert find_workload(name, KEYS) == key
    assert find_workload_and_size(name, SIZES) == (key, None)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("pretrain_nemotron4_15b", ("pretrain_nemotron4", "15b")),
        ("pretrain_nemotron4-15b", ("pretrain_nemotron4", "15b")),
        ("pretrain_nemotron4_340b", ("pretrain_nemotron4", "340b")),
        ("nemotron4.340B", ("pretrain_nemotron4", "340b")),
        ("pretrain_nemotron-h_56b", ("pretrain_nemotronh", "56b")),
        ("Nemotron_H-56B", ("pretrain_nemotronh", "56b")),
        ("pretrain_llama3.1_405b", ("pretrain_llama3.1", "405b")),
        ("pretrain_llama31_405b", ("pretrain_llama3.1", "405b")),
        ("pretrain_llama3.1_405b-proxy", ("pretrain_llama3.1", "405b-proxy")),
        ("llama31_405b_proxy", ("pretrain_llama3.1", "405b-proxy")),
        ("llama3.1_8b", ("pretrain_llama3.1", "8b")),
        ("nemotronh_tiny", ("pretrain_nemotronh", "tiny")),
    ],
)
def test_spellings_of_a_workload_with_its_size(name: str, found: tuple[str, str]) -> None:
    assert find_workload_and_size(name, SIZES) == found


@dataclass(frozen=True)
class Named:
    aliases: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("pretrain_deepseek_671b", "v3"),
        ("deepseek-671B", "v3"),
        ("pretrain_deepseek-v3", "v3"),
        ("pretrain_deepseek-v3_671b", "v3"),
        ("pretrain_deepseek_v3", "v3"),
        ("pretrain_deepseek_mini", "mini"),
    ],
)
def test_further_names_of_a_size(name: str, found: str) -> None:
    sizes = {"v3": Named(("671b",)), "mini": Named()}
    assert find_workload_and_size(name, {"pretrain_deepseek": sizes}) == (
        "pretrain_deepseek",
        found,
    )
    assert find_size("671B", sizes) == "v3"
    assert find_size("672b", sizes) is None


def test_further_names_of_a_workload() -> None:
    workloads = {"pretrain_kimi": Named(("kimi-k2",)), "pretrain_qwen3": Named()}
    assert find_workload("pretrain_kimi-k2", workloads) == "pretrain_kimi"
    assert as_keys(["kimi_k2", "qwen3", "grok"], workloads) == [
        "pretrain_kimi",
        "pretrain_qwen3",
        "grok",
    ]
    twice = {"a": Named(("x",)), "b": Named(("x",))}
    with pytest.raises(UsageError, match="several") as raised:
        find_workload("x", twice)
    assert raised.value.code == "workload-ambiguous"


@given(st.data())
def test_case_and_separators_never_count(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(KEYS))
    size = data.draw(st.sampled_from([None, *SIZES[key]]))
    prefix = data.draw(st.sampled_from(["pretrain", "pretraining", ""]))
    words = squash_workload(key) + (squash(size) if size else "")
    between = data.draw(
        st.lists(st.sampled_from(["", "-", "_", "."]), min_size=len(words), max_size=len(words))
    )
    upper = data.draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    letters = [letter.upper() if up else letter for letter, up in zip(words, upper, strict=True)]
    name = prefix + "".join(mark + letter for mark, letter in zip(between, letters, strict=True))
    assert find_workload_and_size(name, SIZES) == (key, size)


def test_a_key_written_exactly_wins_over_its_other_spellings() -> None:
    assert find_workload("my-model", ["my-model", "my_model"]) == "my-model"


def test_a_spelling_of_two_keys_is_an_error_that_names_both() -> None:
    with pytest.raises(UsageError, match="my-model, my_model") as caught:
        find_workload("MyModel", ["my_model", "my-model"])
    assert (caught.value.code, caught.value.value) == ("workload-ambiguous", "MyModel")


def test_a_name_that_is_a_key_and_a_key_with_size_is_ambiguous(
    wording: Callable[..., None],
) -> None:
    sizes = {"pretrain_gpt": ["3b", "7b"], "pretrain_gpt_3b": ["x"]}
    with pytest.raises(UsageError) as caught:
        find_workload_and_size("gpt-3b", sizes)
    assert caught.value.code == "workload-ambiguous"
    wording("list", describe(caught.value))
    assert find_workload_and_size("pretrain_gpt_3b", sizes) == ("pretrain_gpt_3b", None)
    assert find_workload_and_size("gpt-7b", sizes) == ("pretrain_gpt", "7b")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("nemtron4", "pretrain_nemotron4"),
        ("nemotronn", "pretrain_nemotronh"),
        ("llama3", "pretrain_llama3.1"),
        ("lama", "pretrain_llama3.1"),
        ("pretrain_lama3.1", "pretrain_llama3.1"),
    ],
)
def test_the_nearest_workload_is_offered(name: str, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_workload(name, KEYS)
    assert (caught.value.code, caught.value.value) == ("workload-unknown", name)
    assert f"'{key}'" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["nemotron", "Pretrain_Nemotron", "nemo"])
def test_a_name_that_begins_several_is_offered_all_of_them(name: str) -> None:
    for find in (lambda: find_workload(name, KEYS), lambda: find_workload_and_size(name, SIZES)):
        with pytest.raises(UsageError) as caught:
            find()
        assert (caught.value.code, caught.value.value) == ("workload-unknown", name)
        assert re.findall(r"'(\w+)'", caught.value.hint or "") == [
            "pretrain_nemotron4",
            "pretrain_nemotronh",
        ]


@pytest.mark.parametrize("name", ["gpt", "", "pretrain", "pretrain_mixtral"])
def test_a_name_that_is_near_to_nothing_gets_the_way_to_the_list(name: str) -> None:
    for find in (lambda: find_workload(name, KEYS), lambda: find_workload_and_size(name, SIZES)):
        with pytest.raises(UsageError) as caught:
            find()
        assert caught.value.code == "workload-unknown"
        assert (caught.value.hint or "").startswith("llmb-run list")


def test_the_size_of_one_workload_is_offered_with_it() -> None:
    sizes = {"microbench": ("gemm", "copy"), "pretrain_a": ("8b",), "pretrain_b": ("8b", "70b")}
    for name, hint in (("gemm", "microbench_gemm"), ("70B", "pretrain_b_70b")):
        with pytest.raises(UsageError, match="no workload is called") as raised:
            find_workload_and_size(name, sizes)
        assert raised.value.hint == f"did you mean '{hint}'?"
    with pytest.raises(UsageError) as raised:
        find_workload_and_size("8b", sizes)
    assert raised.value.hint == "did you mean 'pretrain_a_8b' or 'pretrain_b_8b'?"
    with pytest.raises(UsageError) as raised:
        find_workload_and_size("8b", {f"workload{letter}": ("8b",) for letter in "vwxyz"})
    assert "workload" in str(raised.value.hint).partition("list shows the")[2]


def test_a_name_with_size_near_to_one_is_offered_in_full() -> None:
    with pytest.raises(UsageError) as caught:
        find_workload_and_size("lama3.1_405b", SIZES)
    assert "'pretrain_llama3.1_405b'" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "size", "near"),
    [
        ("pretrain_nemotron4_341b", "341b", "340b"),
        ("llama3.1_405-proxy", "405-proxy", "405b-proxy"),
        ("nemotron416b", "16b", "15b"),
        ("pretraining_nemotron-h.57b", "57b", "56b"),
    ],
)
def test_a_wrong_size_is_reported_as_written_with_the_nearest(
    name: str, size: str, near: str
) -> None:
    with pytest.raises(UsageError) as caught:
        find_workload_and_size(name, SIZES)
    assert (caught.value.code, caught.value.value) == ("size-unknown", size)
    assert f"'{near}'" in (caught.value.hint or "")
    assert ["-w", caught.value.key] == (caught.value.hint or "").split()[-2:]


def test_a_wrong_size_belongs_to_the_longest_workload_that_fits() -> None:
    with pytest.raises(UsageError) as caught:
        find_workload_and_size("gpt4_9b", {"pretrain_gpt": ["1b"], "pretrain_gpt4": ["2b"]})
    assert (caught.value.key, caught.value.value) == ("pretrain_gpt4", "9b")


def test_sizes_in_other_spellings() -> None:
    assert find_size("405B_Proxy", SIZES["pretrain_llama3.1"]) == "405b-proxy"
    assert find_size("405", SIZES["pretrain_llama3.1"]) is None


def test_suggest_lists_all_when_nothing_is_near() -> None:
    assert suggest("xyz", ["fp8", "bf16"]).endswith("fp8, bf16")
    assert "none" in suggest("xyz", [])
    assert "'bf16'" in suggest("bf-61", ["fp8", "bf16"])
    assert "fp8" not in suggest("bf-61", ["fp8", "bf16"])


def test_b200_is_not_taken_for_gb200_when_both_are_there() -> None:
    assert nearest("B200", ["gb200", "b200"]) == "b200"


def test_an_offered_size_runs_on_the_gpu_type(wording: Callable[..., None]) -> None:
    here = {
        "pretrain_nemotron4": ["15b", "tiny"],
        "pretrain_llama3.1": [],
        "pretrain_nemotronh": ["tiny"],
    }
    for name in ("nemotronh_15b", "nemotron4_340", "llama3.1_9b", "nemotronh_tinny"):
        with pytest.raises(UsageError) as caught:
            find_workload_and_size(name, SIZES, on="cpu", usable_sizes=here.__getitem__)
        assert caught.value.code == "size-unknown"
        wording("list", describe(caught.value))


def test_a_name_is_shortened_by_what_tells_least() -> None:
    assert list(
        shorter("pretrain_nemotron4_340b_fp8_gpus512_tp8_pp8_cp1_vpNone_mbs1_gbs128_steps20_ckpt")
    ) == [
        "pretrain_nemotron4_340b_fp8_gpus512_tp8_pp8_cp1_vpNone_mbs1_gbs128_steps20_ckpt",
        "nemotron4_340b_fp8_gpus512_tp8_pp8_cp1_vpNone_mbs1_gbs128_steps20_ckpt",
        "nemotron4_340b_fp8_gpus512_tp8_pp8_mbs1_gbs128_steps20_ckpt",
        "nemotron4_340b_fp8_gpus512..pp8_mbs1_gbs128_steps20_ckpt",
        "nemotron4_340b_fp8_gpus512..mbs1_gbs128_steps20_ckpt",
        "nemotron4_340b_fp8_gpus512..gbs128_steps20_ckpt",
        "nemotron4_340b_fp8_gpus512.._steps20_ckpt",
    ]


def test_parameters_are_shortened_like_numbers() -> None:
    names = [
        f"bench_all_reduce_fp32_gpus8_message_size{size}_algorithmauto" for size in ("1M", "256M")
    ]
    assert apart(names, 46) == [
        "bench_all_reduce_fp32_gpus8..size1M",
        "bench_all_reduce_fp32_gpus8..size256M",
    ]
    assert list(dict.fromkeys(shorter(names[0])))[1:] == [
        "bench_all_reduce_fp32_gpus8..size1M_algorithmauto",
        "bench_all_reduce_fp32_gpus8..algorithmauto",
        "bench_all_reduce_fp32_gpus8..",
    ]


@pytest.mark.parametrize("text", ["", "a log", "pretrain_x_1b_bf16_gpus8", "gpus8_tp1"])
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert list(shorter(text)) == [text]
