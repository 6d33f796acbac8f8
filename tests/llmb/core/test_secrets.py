# SPDX-License-Identifier: Apache-2.0
"""Tests of secrets: which names are, and where their values come from."""

from pathlib import Path

import pytest

from llmb.core import secrets
from llmb.errors import LlmbError


@pytest.fixture
def kept(home: Path) -> Path:
    """The user's file of secrets."""
    path = home / ".config/llmb/secrets"
    path.parent.mkdir(parents=True)
    path.write_text("# mine\nHF_TOKEN=from the file\n\nexport NGC_API_KEY='quoted'\nEMPTY_KEY=\n")
    path.chmod(0o600)
    return path


def test_the_environment_comes_before_the_file(kept: Path) -> None:
    names = ("HF_TOKEN", "NGC_API_KEY", "EMPTY_KEY", "OTHER_KEY")
    assert secrets.find(names, {}) == {"HF_TOKEN": "from the file", "NGC_API_KEY": "quoted"}
    assert secrets.find(names, {"HF_TOKEN": "exported", "MORE": "x"})["HF_TOKEN"] == "exported"


def test_only_what_is_asked_for_is_read(kept: Path) -> None:
    kept.chmod(0o644)
    assert secrets.find((), {}) == {}
    assert secrets.find(("HF_TOKEN",), {"HF_TOKEN": "x"}) == {"HF_TOKEN": "x"}
    with pytest.raises(LlmbError) as raised:
        secrets.find(("HF_TOKEN",), {})
    assert (raised.value.code, raised.value.value) == ("secrets-readable", kept)
    assert raised.value.hint == f"chmod 600 {kept}"


def test_without_a_file_there_are_none(home: Path) -> None:
    assert secrets.find(("HF_TOKEN",), {}) == {}


def test_a_line_that_is_no_secret_is_named_without_its_text(kept: Path) -> None:
    kept.write_text("HF_TOKEN=x\nhf_abcdef\n")
    with pytest.raises(LlmbError, match="secrets:2 ") as raised:
        secrets.find(("OTHER_KEY",), {})
    assert (raised.value.code, raised.value.value) == ("secret-invalid", 2)
    assert "abcdef" not in raised.value.message


def test_a_secret_is_kept_beside_the_others(kept: Path) -> None:
    text = kept.read_text()
    secrets.save({"HF_TOKEN": "new", "APP_SECRET": "a=b"})
    assert secrets.find(("HF_TOKEN", "APP_SECRET", "NGC_API_KEY"), {}) == {
        "HF_TOKEN": "new",
        "APP_SECRET": "a=b",
        "NGC_API_KEY": "quoted",
    }
    assert {line for line in text.splitlines() if "HF_TOKEN" not in line} <= {
        *kept.read_text().splitlines()
    }
    assert kept.stat().st_mode & 0o777 == 0o600
    assert {"HF_TOKEN", "APP_SECRET", "NGC_API_KEY"} <= {*secrets.names()}


def test_the_first_secret_makes_the_file(home: Path) -> None:
    secrets.save({})
    assert not (home / ".config").exists()
    secrets.save({"HF_TOKEN": "x"})
    path = home / ".config" / "llmb" / "secrets"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("HF_TOKEN=x\n", 0o600)


def test_a_secret_is_one_line(home: Path) -> None:
    with pytest.raises(LlmbError) as raised:
        secrets.save({"HF_TOKEN": "x\ny"})
    assert (raised.value.code, raised.value.key) == ("secret-invalid", "HF_TOKEN")


def test_nothing_is_added_to_a_file_that_others_read(kept: Path) -> None:
    kept.chmod(0o644)
    with pytest.raises(LlmbError) as raised:
        secrets.save({"HF_TOKEN": "x"})
    assert (raised.value.code, raised.value.value) == ("secrets-readable", kept)


@pytest.mark.parametrize(
    "value",
    [
        "'x'",
        '"x"',
        "it's",
        '"',
        "'",
        " x ",
        "a b",
        "a#b",
        "#x",
        "$HOME",
        "a\\b",
        "\\",
        "x\u2028y",
        "x\x0cy",
        "é",
        "=",
        "x\r",
        "\t",
        "'a'b'",
        "`id`",
        "export x",
    ],
)
def test_a_secret_that_was_saved_reads_back_exactly(home: Path, value: str) -> None:
    secrets.save({"HF_TOKEN": value, "OTHER_KEY": "next"})
    assert secrets.find(("HF_TOKEN", "OTHER_KEY"), {}) == {"HF_TOKEN": value, "OTHER_KEY": "next"}
    secrets.save({"THIRD_KEY": value})
    secrets.save({"OTHER_KEY": value})
    assert secrets.find(("HF_TOKEN", "OTHER_KEY", "THIRD_KEY"), {}) == dict.fromkeys(
        ("HF_TOKEN", "OTHER_KEY", "THIRD_KEY"), value
    )


def test_what_users_write_by_hand_is_read_as_before(kept: Path) -> None:
    kept.write_text("A_KEY=it's\nB_KEY=\"two words\"\nC_KEY = 'x'\nD_KEY='open\nE_KEY=a'b\"\n")
    found = secrets.find(("A_KEY", "B_KEY", "C_KEY", "D_KEY", "E_KEY"), {})
    assert found == {
        "A_KEY": "it's",
        "B_KEY": "two words",
        "C_KEY": "x",
        "D_KEY": "'open",
        "E_KEY": "a'b\"",
    }


def test_a_file_that_is_no_text_is_a_fault_with_its_line(kept: Path) -> None:
    kept.write_bytes(b"A_KEY=x\nB_KEY=caf\xe9\n")
    for use in (lambda: secrets.find(("A_KEY",), {}), lambda: secrets.save({"A_KEY": "y"})):
        with pytest.raises(LlmbError, match="secrets:2 ") as raised:
            use()
        assert (raised.value.code, raised.value.value) == ("not-utf-8", 2)


@pytest.mark.parametrize(
    "word",
    [
        *("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"),
        *("APIKEY", "ACCESSKEY", "SECRETKEY", "ACCOUNTKEY", "PRIVATEKEY", "MASTERKEY"),
        *("SIGNINGKEY", "_KEY", "_PASS", "_PWD", "_PW", "_CREDS", "_AUTH"),
    ],
)
def test_names_of_secrets_end_with_what_they_hold(word: str) -> None:
    name = f"MY{word}"
    assert secrets.is_secret_name(name)
    assert secrets.is_secret_name(name.lower())
    assert not secrets.is_secret_name(f"{name}_FILE")


@pytest.mark.parametrize(
    "name", ["PWD", "OLDPWD", "AUTH", "MONKEY", "TOKENIZER", "TOKENS", "KEYS", "COMPASS", "HOTKEY"]
)
def test_names_that_only_look_alike_hold_no_secret(name: str) -> None:
    assert not secrets.is_secret_name(name)


def test_a_name_may_be_no_more_than_the_word() -> None:
    assert all(map(secrets.is_secret_name, ("KEY", "TOKEN", "password", "accessKey")))
