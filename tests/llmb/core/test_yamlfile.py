# SPDX-License-Identifier: Apache-2.0
"""Tests that YAML is read with its lines, and that each fault in it is reported with its place and
code.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from llmb.core.yamlfile import Document, DuplicateKey, load, parse
from llmb.errors import Fault, InputFaults, UsageError, describe


def faults(text: str) -> list[Fault]:
    with pytest.raises(InputFaults) as caught:
        parse(text, name="f.yaml")
    return caught.value.faults


def fault(text: str) -> Fault:
    (only,) = faults(text)
    return only


def data(text: str) -> Any:
    return parse(text, name="f.yaml").data


def test_plain_data() -> None:
    text = "a: [1, 2.5, x, true, null]\nb: {c: d}\n"
    assert data(text) == {"a": [1, 2.5, "x", True, None], "b": {"c": "d"}}


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing but this\n", "---\n"])
def test_an_empty_document_is_an_empty_mapping_or_nothing(text: str) -> None:
    assert not data(text)


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.touch()
    assert load(path) == Document(name=str(path), data={})


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert data("\ufeffa: 1\n") == {"a": 1}


DOCUMENT = parse("a:\n  b: [x,\n    {c: 1}]\nd: 2\n", name="f.yaml")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("a",), "f.yaml:1"),
        (("a", "b"), "f.yaml:2"),
        (("a", "b", 1, "c"), "f.yaml:3"),
        (("d",), "f.yaml:4"),
        (("a", "b", "missing"), "f.yaml:2"),
        (("missing",), "f.yaml:1"),
    ],
    ids=str,
)
def test_a_place_is_the_line_of_the_key_or_of_what_holds_it(
    path: tuple[str | int, ...], place: str
) -> None:
    assert DOCUMENT.place(path) == place


def test_data_from_elsewhere_has_its_name_for_a_place() -> None:
    assert Document(name="job.json", data={"a": 1}).place(("a",)) == "job.json"


def test_a_duplicate_key_is_a_fault_at_its_second_line(wording: Callable[..., None]) -> None:
    found = fault("a: 1\nb: 2\na: 3\n")
    assert (found.place, found.code, found.key) == ("f.yaml:3", "key-duplicate", "a")
    wording("yaml", describe(InputFaults([found])))


def test_every_duplicate_key_is_reported() -> None:
    found = faults("x: {a: 1, a: 2}\ny:\n  b: 1\n  b: 2\n")
    assert [one.place for one in found] == ["f.yaml:1", "f.yaml:4"]


def test_two_mappings_may_have_the_same_key() -> None:
    text = "x: {a: 1}\ny: {a: 2}\n"
    assert data(text) == {"x": {"a": 1}, "y": {"a": 2}}


def test_without_strict_every_value_is_returned_with_the_faults() -> None:
    document = parse("a: {b: 1, b: 2}\na: 3\na: 4\n", name="f.yaml", strict=False)
    assert document.data == {
        "a": {"b": 2},
        DuplicateKey(key="a", line=2): 3,
        DuplicateKey(key="a", line=3): 4,
    }
    assert [one.place for one in document.faults] == ["f.yaml:1", "f.yaml:2", "f.yaml:3"]
    assert document.place((DuplicateKey(key="a", line=3),)) == "f.yaml:3"


def test_a_merge_key_gives_defaults() -> None:
    text = "base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\n"
    assert data(text)["own"] == {"x": 1, "y": 3}


@pytest.mark.parametrize("key", ["x", "batch"])  # PyYAML 6.0.4 confuses keys by their length
def test_a_merge_of_several_takes_the_first(key: str) -> None:
    text = f"- &a {{{key}: 1}}\n- &b {{{key}: 2, y: 2}}\n- {{<<: [*a, *b]}}\n"
    assert data(text)[2] == {key: 1, "y": 2}


def test_a_merge_of_what_is_no_mapping_is_refused() -> None:
    assert fault("base: &b [1]\nown: {<<: *b}\n").place == "f.yaml:2"


def test_a_duplicate_key_next_to_a_merge_is_still_reported() -> None:
    found = fault("base: &b {x: 1}\nown: {<<: *b, x: 2, x: 3}\n")
    assert (found.code, found.key) == ("key-duplicate", "own.x")
    assert "line 2" in found.message


def test_a_merged_mapping_may_be_used_again() -> None:
    text = "base: &b {x: 1}\nown: &o {<<: *b, x: 2}\nalso: *o\nmore: {<<: *o, z: 3}\n"
    assert data(text) == {
        "base": {"x": 1},
        "own": {"x": 2},
        "also": {"x": 2},
        "more": {"x": 2, "z": 3},
    }


@pytest.mark.parametrize(
    "text",
    ["a: &a {b: *a}\n", "a: &a [1, *a]\n", "a: &a {b: [{c: *a}]}\n", "a: &a {<<: *a, b: 1}\n"],
)
def test_a_value_that_contains_itself_is_refused(text: str) -> None:
    assert (fault(text).place, fault(text).code) == ("f.yaml:1", "yaml-invalid")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: [1, 2\n", 3, "did not find expected ',' or ']'"),
        ("a: {b: 1}}\n", 1, "did not find expected key"),
        ("a: 1\n\tb: 2\n", 2, "found a tab character that violates indentation"),
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ("a: *nowhere\n", 1, "found undefined alias"),
        ("a: 1\n--- \nb: 2\n", 2, "but found another document"),
        ("<<: 3\n", 1, "expected a mapping or list of mappings for merging"),
        ("a: !thing x\n", 1, "could not determine a constructor"),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(text: str, line: int, reason: str) -> None:
    found = fault(text)
    assert found.code == "yaml-invalid"
    if not hasattr(yaml, "CSafeLoader"):
        return  # without libyaml, the reason and sometimes the line differ
    assert reason in found.message
    assert found.place == f"f.yaml:{line}"


@pytest.mark.parametrize("text", ["a:\n\tb: 1\n", "a:\n  b: 1\n  \tc: 2\n", "a: 1\n\tb: 2\n"])
def test_a_tab_before_a_key_is_named(text: str) -> None:
    assert "tabs" in (fault(text).hint or "")


def test_another_fault_has_no_hint_about_tabs() -> None:
    assert fault("a: [1\nb:\t2\n").hint is None


def test_a_control_character_is_refused_in_one_line() -> None:
    found = fault("a: \x00\n")
    assert found.place == "f.yaml"
    assert "\n" not in found.message


@pytest.mark.parametrize(
    "text", ["a: 1\nday: 2025-13-01\n", "a: 1\n2025-13-01: x\n", "a: 1\nmask: 0b_\n"]
)
def test_text_that_looks_like_a_date_or_number_needs_quotes(text: str) -> None:
    found = fault(text)
    assert (found.place, found.code) == ("f.yaml:2", "yaml-invalid")
    assert "quotes" in (found.hint or "")


@pytest.mark.parametrize("text", ["? [a, b]\n: 1\n", "? {a: b}\n: 1\n"])
def test_a_key_must_be_a_plain_word(text: str) -> None:
    assert (fault(text).place, fault(text).code) == ("f.yaml:1", "key-invalid")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=os.strerror(errno.ENOENT)) as caught:
        load(tmp_path / "none.yaml")
    assert (caught.value.code, caught.value.value) == (
        "file-unreadable",
        str(tmp_path / "none.yaml"),
    )


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"the list .*{os.strerror(errno.EISDIR)}") as caught:
        load(tmp_path, name="the list")
    assert (caught.value.code, caught.value.value) == ("file-unreadable", str(tmp_path))


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\r\ntitle: Prüfung\r\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.yaml.*line 2") as raised:
        load(path)
    assert raised.value.code == "not-utf-8"


def test_numbers_that_python_writes_differently_keep_their_text() -> None:
    document = parse("a: 25.10\nb: [0x10, 7, '25.10', x]\n", name="f.yaml")
    assert document.texts == {("a",): "25.10", ("b", 0): "0x10"}, "7 is what Python writes"


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(words, values, max_size=4))
def test_dumped_yaml_is_read_back(value: dict[str, Any]) -> None:
    assert data(yaml.safe_dump(value)) == value


def _bomb(depth: int, unit: str) -> str:
    """Each line contains the line before nine times."""
    first = "a0: &a0 {x: 1}\n" if "{" in unit else "a0: &a0 [1]\n"
    return first + "".join(
        unit.format(n=n, m=", ".join([f"*a{n - 1}"] * 9)) for n in range(1, depth)
    )


@pytest.mark.parametrize("unit", ["a{n}: &a{n} [{m}]\n", "a{n}: &a{n} {{<<: [{m}], k{n}: 1}}\n"])
def test_aliases_that_expand_too_far_are_refused_at_once(unit: str) -> None:
    for depth in (9, 60):
        assert fault(_bomb(depth, unit)).code == "yaml-too-large"
    assert parse(_bomb(3, unit), name="f.yaml").data
    shared = "d: &d {env: {A: b}, scales: [1, 2, 3]}\n" + "".join(
        f"w{n}: *d\n" for n in range(5000)
    )
    assert len(parse(shared, name="f.yaml").data) == 5001


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "- " * 100_000 + "x", "{" * 50_000, "? " * 50_000, "a: [" * 5000]
)
def test_deep_nesting_is_a_fault_and_not_a_crash(text: str) -> None:
    assert fault(text).code == "yaml-too-deep"


@pytest.mark.parametrize("text", ["x: " + "1:" * 100_000 + "1", "x: " + "9" * 100_000])
def test_an_endless_number_is_refused(text: str) -> None:
    assert fault(text).code == "yaml-number-too-long"
    assert parse(f"{text[:3]}'{text[3:]}'", name="f.yaml").data["x"] == text[3:]
