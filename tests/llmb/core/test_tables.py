# SPDX-License-Identifier: Apache-2.0
"""Tests that rows come out whole in every format, and that no text in them can harm a terminal or a
parser.
"""

import csv
import io
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from llmb.core import tables
from llmb.core.tables import Column, escape, indented_items, render, shorten, to_json

COLUMNS = [Column(key="name"), Column(key="step_time", show="{:.2f}".format, right=True)]
ROWS: list[dict[str, Any]] = [
    {"name": "a", "step_time": 1.234},
    {"name": "long[red] one", "step_time": 12},
    {"name": "b"},
]
EVIL = "x\x1b[31m\r\nnext\u202e\x9b\x7f"


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_table() -> None:
    head, rule, *body = render(COLUMNS, ROWS, "table").splitlines()
    assert head.split() == ["name", "step", "time"]
    assert set(rule.strip()) == {"─"}
    assert [line.split() for line in body] == [["a", "1.23"], ["long[red]", "one", "12.00"], ["b"]]
    assert len(body[0]) == len(body[1])  # numbers end below each other


def test_markdown() -> None:
    table = "| name | step time |\n|------|----------:|\n| a\\|b |      1.00 |\n"
    assert render(COLUMNS, [{"name": "a|b", "step_time": 1}], "md") == table


def test_markdown_without_rows_keeps_its_head() -> None:
    head = "| name | step time |\n|------|----------:|\n"
    assert render(COLUMNS, [], "md") == head


@pytest.mark.parametrize("text", ["=cmd()|'x'", "+1+2", "-1-2", "@SUM(A1)", "-x", "=1", "--flag"])
def test_no_text_of_csv_is_a_formula_of_a_spreadsheet(text: str) -> None:
    rows = [{"name": text, "step_time": -1.5}]
    _, (name, number) = csv.reader(io.StringIO(render(COLUMNS, rows, "csv")))
    assert (name, number) == (f"'{text}", "-1.5")
    assert json.loads(render(COLUMNS, rows, "json"))[0]["name"] == text


@pytest.mark.parametrize("text", ["-1.5", "+2", "-1e-3", "-.5", "-", "a=b", "1-2", "", "16M"])
def test_other_texts_of_csv_stay_as_they_are(text: str) -> None:
    rows = [{"name": text, "step_time": 1}]
    assert list(csv.reader(io.StringIO(render(COLUMNS, rows, "csv"))))[1][0] == text


def test_csv() -> None:
    text = render(COLUMNS, [{"name": 'a,"b"', "step_time": 1.234}, {"name": [1, 2]}], "csv")
    assert text == 'name,step_time\n"a,""b""",1.234\n"[1, 2]",\n'


def test_json() -> None:
    assert json.loads(render(COLUMNS, ROWS, "json")) == [{"step_time": None, **row} for row in ROWS]


def test_json_has_no_nan() -> None:
    assert json.loads(to_json({"a": [math.nan, 1.5], "b": (-math.inf,)})) == {
        "a": [None, 1.5],
        "b": [None],
    }


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
TREES = st.recursive(
    SCALARS | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans() | st.none(), inner)
    ),
)


@given(TREES, st.lists(st.dictionaries(st.sampled_from("abé"), st.sampled_from([[], {"x": [1]}]))))
def test_json_is_what_pythons_own_encoder_writes(
    tree: object, items: list[dict[str, object]]
) -> None:
    assert to_json(tree) == json.dumps(tree, indent=2) + "\n"
    printed = ",\n  ".join(indented_items(items, 1))
    if items:
        assert f"[\n  {printed}\n]" == json.dumps(items, indent=2)


def test_items_are_not_formatted_with_the_value_of_another_item() -> None:
    script = "#!/bin/bash\n"
    items = [{"a": value, "script": script} for value in (1, True, 1.0, None)] + [{"b": script}]
    assert [json.dumps(json.loads(text)) for text in indented_items(items, 0)] == [
        json.dumps(item) for item in items
    ]


def test_a_narrow_table_folds_text_and_keeps_numbers() -> None:
    text = render(COLUMNS, [{"name": "abcdefgh" * 10, "step_time": 123456.789}], "table", width=30)
    assert "123456.79" in text
    assert "…" not in text
    assert "".join(line[1:14].strip() for line in text.splitlines()[2:]).startswith("abcdefgh")
    assert all(len(line) <= 30 for line in text.splitlines())


def test_a_table_that_no_terminal_holds_loses_nothing() -> None:
    columns = [Column(key=key, right=True) for key in "abcdefgh"]
    text = render(columns, [dict.fromkeys("abcdefgh", 1234567890)], "table", width=20)
    assert text.splitlines()[-1].split() == ["1234567890"] * 8


def test_a_wide_number_stays_whole_beside_text() -> None:
    rows = [{"name": "abcdefghijklmnop", "step_time": 1.5e17}]
    assert "150000000000000000.00" in render(COLUMNS, rows, "table", width=39)


def test_columns_sets_the_width_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"name": "word " * 50, "step_time": 1}]
    assert len(render(COLUMNS, rows, "table").splitlines()) == 3
    monkeypatch.setenv("COLUMNS", "60")
    folded = render(COLUMNS, rows, "table").splitlines()
    assert len(folded) > 3
    assert max(map(len, folded)) <= 60


@pytest.mark.parametrize("fmt", ["table", "md", "csv", "json"])
def test_control_characters_are_written_as_codes(fmt: str) -> None:
    text = render(COLUMNS, [{"name": EVIL, "step_time": 1}], fmt)
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\u202e" in text
    assert "\nnext" not in text


def test_escape() -> None:
    assert escape("é 日 ok") == "é 日 ok"
    assert escape(EVIL) == r"x\x1b[31m\r\nnext\u202e\x9b\x7f"
    assert escape("\udc80") == r"\udc80"


@pytest.mark.parametrize(
    ("width", "text"), [(26, "abcdefghijklmnopqrstuvwxyz"), (9, "abc...xyz"), (10, "abcd...xyz")]
)
def test_shorten(width: int, text: str) -> None:
    assert shorten("abcdefghijklmnopqrstuvwxyz", width) == text


@given(
    st.lists(
        st.fixed_dictionaries({"name": st.text(), "step_time": st.none() | st.floats()}), max_size=4
    )
)
def test_any_text_keeps_its_row_in_every_format(rows: list[dict[str, Any]]) -> None:
    assert len(list(csv.reader(io.StringIO(render(COLUMNS, rows, "csv"))))) == len(rows) + 1
    assert [row["name"] for row in json.loads(render(COLUMNS, rows, "json"))] == [
        row["name"] for row in rows
    ]
    assert len(render(COLUMNS, rows, "md").splitlines()) == len(rows) + 2
    render(COLUMNS, rows, "table", width=40).encode("utf-8")


@settings(max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.sampled_from(["", "a", "b c", "[red]x", "é±", "can\u2019t → …", "日"]),
                "step_time": st.none() | st.integers(),
            }
        ),
        max_size=4,
    ),
    st.integers(10, 60),
)
def test_a_table_drawn_the_quick_way_is_the_one_that_rich_draws(
    rows: list[dict[str, Any]], width: int
) -> None:
    for gap in (3, 2, 1):
        quick = tables.plain_table(COLUMNS, rows, width, [gap])
        assert quick in (
            None,
            tables._print(tables._table(COLUMNS, rows, gap, [None] * len(COLUMNS)), width),
        )


@pytest.mark.parametrize("text", ["a", "can\u2019t open “x”: 3 ≤ 2 → …"])
def test_a_plain_table_is_drawn_the_quick_way(text: str) -> None:
    assert tables.plain_table([Column(key="name")], [{"name": text}], 40) is not None


def test_an_experiment_keeps_what_tells_it_apart() -> None:
    end = "gpus2_tp1_pp1_cp1_vpNone_mbs2_gbs8"
    assert shorten(f"pretrain_nemotron4_tiny_bf16_{end}", 32) == "nemotron4_tiny_bf16_gpus2..gbs8"
    assert shorten(f"pretrain_nemotronh_tiny_bf16_{end}", 32) == "nemotronh_tiny_bf16_gpus2..gbs8"
    assert shorten(f"pretrain_nemotronh_tiny_bf16_{end}", 18) == "nemotron...gpus2.."


def test_a_table_that_is_too_wide_loses_the_gaps_before_text_is_folded() -> None:
    columns = [Column(key="name"), Column(key="reason")]
    rows = [{"name": "n" * 10, "reason": "r" * 10}]
    assert [
        render(columns, rows, "table", width=width).splitlines()[-1] for width in (25, 24, 23)
    ] == [f" {'n' * 10}{' ' * gap}{'r' * 10}" for gap in (3, 2, 1)]


def test_words_of_a_reason_stay_whole_where_the_width_allows() -> None:
    columns = [Column(key="a", right=True), Column(key="name"), Column(key="reason")]
    rows = [
        {
            "a": 123456,
            "name": "word " * 8 + "word",
            "reason": "UnsupportedOperation: it cannot be done",
        }
    ]
    text = render(columns, rows, "table", width=50)
    assert "UnsupportedOperation:" in text
    assert max(map(len, text.splitlines())) <= 50


@given(
    st.lists(st.tuples(st.text("ab ", max_size=70), st.text("cd ", max_size=70)), min_size=1),
    st.integers(10, 90),
)
def test_a_folded_table_loses_no_character(texts: list[tuple[str, str]], width: int) -> None:
    columns = [Column(key="n", right=True), Column(key="1"), Column(key="2")]
    text = render(
        columns, [{"n": 12345, "1": one, "2": two} for one, two in texts], "table", width=width
    )
    for place in (0, 1):
        for char in ("ab", "cd")[place]:
            assert text.count(char) == sum(pair[place].count(char) for pair in texts)


@pytest.mark.parametrize("name", ["host_to_device_v2", "a_long_size_of_thirty_letters_"])
def test_a_name_stays_whole_where_other_columns_can_fold(name: str) -> None:
    types = ", ".join(["a100", "h100", "h200", "b200", "b300", "gb200", "gb300"])
    columns = [Column(key="workload", whole=True), Column(key="size", whole=True)]
    columns += [Column(key=key) for key in ("gpus", "dtypes", "here")]
    row = {
        "workload": "pretrain_nemotron4",
        "size": name,
        "gpus": types,
        "dtypes": types,
        "here": "no row for h200",
    }
    lines = render(columns, [row], "table", width=80).splitlines()
    assert name in lines[2]
    assert all(word in "\n".join(lines) for word in row["gpus"].split(", "))
    assert max(map(len, lines)) <= 80
