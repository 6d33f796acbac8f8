# SPDX-License-Identifier: Apache-2.0
"""Credentials: where they are found, in which order, and that they are never shown."""

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sqshpull.credentials import (
    RegistryCredentials,
    find_credentials,
    parse_netrc,
    searched_places,
)
from sqshpull.errors import PullError
from sqshpull.settings import PullUser, SecretStore

HOST = "registry.example:5050"


def docker_config(home: Path, **data: Any) -> None:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps(data))


def auth(user: str, secret: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{secret}".encode()).decode()}


def enroot(home: Path, text: str) -> Path:
    path = home / ".config" / "enroot" / ".credentials"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def helper(home: Path, name: str, text: str) -> dict[str, str]:
    """A docker-credential-NAME on PATH; the environment to call it in."""
    program(home / "bin", f"docker-credential-{name}", text)
    return {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}


def find(home: Path, registry: str = HOST, **environ: str) -> RegistryCredentials | None:
    return find_credentials(registry, PullUser(environ=environ, home=home))


def parts(found: RegistryCredentials | None) -> tuple[str, str, str]:
    assert found is not None
    return found.user, found.secret, found.source


def test_none_anywhere(home: Path) -> None:
    assert find(home) is None
    assert (
        searched_places("nvcr.io", PullUser(environ={}, home=home))
        == "NGC_API_KEY, ~/.docker/config.json, ~/.config/enroot/.credentials"
    )


@pytest.mark.parametrize(
    ("registry", "key"),
    [
        (HOST, HOST),
        (HOST, f"https://{HOST}"),
        (HOST, f"https://{HOST}/v2/"),
        ("docker.io", "https://index.docker.io/v1/"),
        ("docker.io", "docker.io"),
    ],
)
def test_docker_config(home: Path, registry: str, key: str) -> None:
    docker_config(home, auths={"other.example": auth("x", "y"), key: auth("me", "a:b")})
    assert parts(find(home, registry)) == ("me", "a:b", "~/.docker/config.json")


def test_docker_config_elsewhere_and_with_plain_words(home: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"auths": {HOST: {"username": "me", "password": "p"}}})
    )
    found = find(home, DOCKER_CONFIG=str(tmp_path))
    assert parts(found) == ("me", "p", f"{tmp_path}/config.json")


def test_podmans_file(home: Path, tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers" / "auth.json").write_text(
        json.dumps({"auths": {HOST: auth("me", "p")}})
    )
    assert parts(find(home, XDG_RUNTIME_DIR=str(tmp_path)))[2] == f"{tmp_path}/containers/auth.json"


def test_an_identity_token_is_one(home: Path) -> None:
    docker_config(home, auths={HOST: {**auth("me", ""), "identitytoken": "refresh"}})
    found = find(home)
    assert parts(found)[:2] == ("me", "refresh")
    assert found is not None
    assert found.is_identity_token


@pytest.mark.parametrize("kept", [{"auth": "!!!"}, {"auth": base64.b64encode(b"nocolon").decode()}])
def test_a_damaged_login_is_named(home: Path, kept: dict[str, str], fails: Any) -> None:
    docker_config(home, auths={HOST: kept})
    with fails("credentials-unreadable") as caught:
        find(home)
    assert caught.value.key.endswith("config.json")


def test_a_damaged_file_is_named(home: Path) -> None:
    docker_config(home)
    (home / ".docker" / "config.json").write_text("{")
    with pytest.raises(PullError) as caught:
        find(home)
    assert caught.value.message.startswith(f"{home}/.docker/config.json ")


def test_a_helper_is_asked_by_its_protocol(home: Path) -> None:
    answer = '{"ServerURL": "x", "Username": "me", "Secret": "s3"}'
    environ = helper(home, "kept", f'[ "$1" = get ] && [ "$(cat)" = {HOST} ] && echo \'{answer}\'')
    docker_config(
        home, credHelpers={HOST: "kept"}, credsStore="absent", auths={HOST: auth("other", "one")}
    )
    assert parts(find(home, **environ)) == (
        "me",
        "s3",
        "~/.docker/config.json (docker-credential-kept)",
    )


def test_the_store_is_asked_for_docker_hub_by_its_own_name(home: Path) -> None:
    answer = '{"Username": "<token>", "Secret": "refresh"}'
    environ = helper(
        home, "store", f"[ \"$(cat)\" = https://index.docker.io/v1/ ] && echo '{answer}'"
    )
    docker_config(home, credsStore="store", auths={"https://index.docker.io/v1/": {}})
    found = find(home, "docker.io", **environ)
    assert found is not None
    assert (found.secret, found.is_identity_token) == ("refresh", True)


def test_a_helper_without_this_login_leaves_it_to_the_file(home: Path) -> None:
    environ = helper(home, "store", "echo credentials not found in native keychain; exit 1")
    docker_config(home, credsStore="store", auths={HOST: auth("me", "p")})
    assert parts(find(home, **environ))[2] == "~/.docker/config.json"


@pytest.mark.parametrize(
    "text", ["echo the keychain is locked; exit 1", "echo no json"], ids=["fails", "no-json"]
)
def test_a_helper_that_fails_is_named(home: Path, text: str, fails: Any) -> None:
    environ = helper(home, "store", text)
    docker_config(home, credsStore="store")
    with fails("credential-helper-failed") as caught:
        find(home, **environ)
    assert caught.value.key == "docker-credential-store"


def test_a_helper_that_is_not_there_is_named(home: Path, fails: Any) -> None:
    docker_config(home, credHelpers={HOST: "absent"})
    with fails("credential-helper-failed") as caught:
        find(home, PATH=str(home))
    assert caught.value.key == "docker-credential-absent"


def test_enroots_file(home: Path) -> None:
    enroot(home, "# ours\nmachine registry.example login me password p\n")
    assert parts(find(home)) == ("me", "p", "~/.config/enroot/.credentials")


def test_enroots_file_by_the_token_server(home: Path) -> None:
    enroot(
        home,
        "machine tokens.example login me password p\nmachine authn.nvidia.com login $oauthtoken"
        " password k",
    )
    found = find_credentials(HOST, PullUser(environ={}, home=home), token_host="tokens.example")
    assert parts(found)[:2] == ("me", "p")
    assert parts(find(home, "nvcr.io"))[:2] == ("$oauthtoken", "k")


def test_enroots_file_elsewhere(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".credentials").write_text(f"machine {HOST} login me password p")
    assert parts(find(home, ENROOT_CONFIG_PATH=str(tmp_path)))[2] == f"{tmp_path}/.credentials"


def test_a_password_that_is_a_command(home: Path) -> None:
    program(home / "bin", "give", 'echo "$2-$1"')
    enroot(home, f"machine {HOST} login me password $({home}/bin/give one two)\n")
    assert parts(find(home))[1] == "two-one"


def test_a_password_that_is_a_variable(home: Path, fails: Any) -> None:
    enroot(home, f"machine {HOST} login me password ${{MY_TOKEN}}\n")
    assert parts(find(home, MY_TOKEN="t"))[1] == "t"
    with fails("variable-missing") as caught:
        find(home)
    assert caught.value.key == "MY_TOKEN"


def test_a_command_that_fails_is_named(home: Path, fails: Any) -> None:
    program(home / "bin", "give", "echo not logged in >&2; exit 1")
    enroot(home, f"machine {HOST} login me password $({home}/bin/give)\n")
    with fails("credential-helper-failed") as caught:
        find(home)
    assert caught.value.value == "not logged in"


def test_netrc() -> None:
    text = (
        'machine a\n  login "one two"\n  password x\nmachine b login y # more\nmachine a login z'
        " password z\ndefault"
    )
    logins = parse_netrc(text)
    assert {host: (login.user, login.secret) for host, login in logins.items()} == {
        "a": ("one two", "x")
    }


def test_the_key_of_ngc(home: Path) -> None:
    docker_config(home, auths={"nvcr.io": auth("me", "p")})
    assert parts(find(home, "nvcr.io", NGC_API_KEY="k")) == (
        "$oauthtoken",
        "k",
        "the variable NGC_API_KEY",
    )
    assert find(home, "ghcr.io", NGC_API_KEY="k") is None
    assert parts(find(home, "nvcr.io", NGC_API_KEY=""))[2] == "~/.docker/config.json"


def test_variables_of_any_registry(home: Path) -> None:
    found = find(
        home, REGISTRY_REGISTRY_EXAMPLE_5050_USER="me", REGISTRY_REGISTRY_EXAMPLE_5050_PASSWORD="p"
    )
    assert parts(found) == ("me", "p", "the variable REGISTRY_REGISTRY_EXAMPLE_5050_PASSWORD")


def test_a_password_without_a_user(home: Path, fails: Any) -> None:
    with fails("variable-missing") as caught:
        find(home, "ghcr.io", REGISTRY_GHCR_IO_PASSWORD="p")
    assert caught.value.key == "REGISTRY_GHCR_IO_USER"


def test_a_store_of_secrets_is_asked_for_what_the_environment_lacks(home: Path) -> None:
    kept = {"NGC_API_KEY": "k", "REGISTRY_GHCR_IO_USER": "me", "REGISTRY_GHCR_IO_PASSWORD": "p"}
    asked: list[str] = []

    def find_kept(names: Sequence[str]) -> Mapping[str, str]:
        asked.extend(names)
        return {name: kept[name] for name in names if name in kept}

    store = SecretStore(name="the vault", find=find_kept)

    def found(registry: str, **environ: str) -> tuple[str, str, str]:
        user = PullUser(environ=environ, home=home, store=store)
        return parts(find_credentials(registry, user))

    assert found("nvcr.io") == ("$oauthtoken", "k", "NGC_API_KEY in the vault")
    assert found("ghcr.io") == ("me", "p", "REGISTRY_GHCR_IO_PASSWORD in the vault")
    asked.clear()
    assert found("ghcr.io", REGISTRY_GHCR_IO_PASSWORD="q")[:2] == ("me", "q")
    assert asked == ["REGISTRY_GHCR_IO_USER"]


def test_secrets_are_never_shown(home: Path) -> None:
    docker_config(home, auths={HOST: auth("me", "hidden")})
    found = find(home)
    assert "hidden" not in f"{found} {found!r}"
    assert str(found) == "'me' from ~/.docker/config.json"
    netrc = f"machine {HOST} login me password hidden"
    assert "hidden" not in repr(parse_netrc(netrc))
