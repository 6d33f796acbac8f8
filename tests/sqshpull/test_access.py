# SPDX-License-Identifier: Apache-2.0
"""Signing in: only when asked, only at the host that asked, and with errors that name the rejected
credentials.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from llmb_testing.sample_images import Made
from llmb_testing.scripted_registry import ScriptedRegistry, Status
from sqshpull.errors import PullError
from sqshpull.reference import ImageReference
from sqshpull.registry import Registry, look_up, look_up_all
from sqshpull.settings import PullUser, RegistrySettings

USERS = {"me": "good"}


def log_in(home: Path, host: str, user: str = "me", secret: str = "good", **more: str) -> None:
    (home / ".docker").mkdir()
    entry: dict[str, Any] = {"username": user, "password": secret, **more}
    (home / ".docker" / "config.json").write_text(json.dumps({"auths": {host: entry}}))


def read(registry: Registry, text: str) -> str:
    return registry.manifest(ImageReference.parse(text), "amd64").digest


@pytest.fixture(params=[True, False], ids=["bearer", "basic"])
def guarded(request: pytest.FixtureRequest, scripted: ScriptedRegistry) -> ScriptedRegistry:
    scripted.passwords, scripted.bearer = USERS, request.param
    return scripted


def test_with_credentials(guarded: ScriptedRegistry, made: Made, client: Any, home: Path) -> None:
    log_in(home, guarded.host)
    text = guarded.add("team/tool", "1", made)
    assert read(client(guarded.host), text) == made.digest
    assert "authorization" not in guarded.asked("/manifests/")[0].headers


def test_nothing_is_sent_unasked(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path
) -> None:
    log_in(home, scripted.host)
    read(client(scripted.host), scripted.add("team/tool", "1", made))
    assert [request for request in scripted.requests if "authorization" in request.headers] == []


def test_without_credentials(
    guarded: ScriptedRegistry, made: Made, client: Any, fails: Any
) -> None:
    """The hint names each place that was searched."""
    text = guarded.add("team/tool", "1", made)
    with fails("credentials-missing", guarded.host) as caught:
        read(client(guarded.host), text)
    assert caught.value.key == guarded.host


def test_wrong_credentials_are_sent_once(
    guarded: ScriptedRegistry, made: Made, client: Any, home: Path, fails: Any
) -> None:
    log_in(home, guarded.host, secret="wrong-secret")
    text = guarded.add("team/tool", "1", made)
    registry = client(guarded.host)
    for _ in range(3):
        with fails("credentials-refused", guarded.host) as caught:
            read(registry, text)
        assert "'me' from ~/.docker/config.json" in caught.value.message
        assert "wrong-secret" not in f"{caught.value} {caught.value.hint}"
    assert len([request for request in guarded.requests if "authorization" in request.headers]) == 1


def test_wrong_credentials_are_sent_once_for_all_images(
    guarded: ScriptedRegistry, made: Made, home: Path
) -> None:
    log_in(home, guarded.host, secret="wrong-secret")
    wanted = [(guarded.add(f"team/tool{number}", "1", made), "amd64") for number in range(12)]
    results = look_up_all(wanted, user=PullUser(environ={}, home=home))
    codes = [result.code for result in results.values() if isinstance(result, PullError)]
    assert codes == ["credentials-refused"] * 12
    assert len([request for request in guarded.requests if "authorization" in request.headers]) == 1


def test_a_mirror_is_asked_for_a_token_by_its_own_names(
    scripted: ScriptedRegistry, made: Made, home: Path
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host)
    scripted.add("hub/team/tool", "1", made)
    settings = RegistrySettings(registry_mirrors={"docker.io": f"{scripted.host}/hub"})
    look_up("team/tool:1", "amd64", user=PullUser(environ={}, home=home), settings=settings)
    assert "scope=repository%3Ahub%2Fteam%2Ftool%3Apull" in scripted.asked("/token")[0].path


def test_a_user_without_permission(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path, fails: Any
) -> None:
    scripted.passwords = USERS
    log_in(home, scripted.host)
    text = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(401, {"WWW-Authenticate": "Basic"}), Status(403))
    with fails("credentials-refused", scripted.host):
        read(client(scripted.host), text)


def test_a_token_is_kept_for_its_repository(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host)
    registry = client(scripted.host)
    texts = [scripted.add(name, "1", made) for name in ("team/tool", "team/other")]
    for text in [*texts, *texts]:
        read(registry, text)
    scopes = [request.path.partition("scope=")[2] for request in scripted.asked("/token")]
    assert scopes == ["repository%3Ateam%2Ftool%3Apull", "repository%3Ateam%2Fother%3Apull"]


def test_a_token_that_runs_out_is_renewed_once(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host)
    registry = client(scripted.host)
    text = scripted.add("team/tool", "1", made)
    read(registry, text)
    scripted.revoke_tokens()
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(lambda _: read(registry, text), range(8))} == {made.digest}
    assert len(scripted.asked("/token")) == 2


def test_an_identity_token_goes_by_oauth2(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host, identitytoken="refresh")
    text = scripted.add("team/tool", "1", made)
    scripted.refresh_tokens = {"refresh"}
    assert read(client(scripted.host), text) == made.digest
    assert "authorization" not in scripted.asked("/token")[0].headers


def test_a_token_without_permission(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path, fails: Any
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host)
    text = scripted.add("team/tool", "1", made)
    challenge = {"WWW-Authenticate": f'Bearer realm="http://{scripted.host}/token",service="x"'}
    scripted.next("/manifests/", Status(401, challenge), Status(401, challenge))
    with fails("credentials-refused", scripted.host):
        read(client(scripted.host), text)


def test_denied_without_a_challenge(
    scripted: ScriptedRegistry, made: Made, client: Any, fails: Any
) -> None:
    text = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(403))
    with fails("credentials-refused", scripted.host):
        read(client(scripted.host), text)


def test_no_secret_goes_to_a_token_server_without_tls(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path, fails: Any
) -> None:
    log_in(home, scripted.host)
    text = scripted.add("team/tool", "1", made)
    scripted.next(
        "/manifests/", Status(401, {"WWW-Authenticate": 'Bearer realm="http://tokens.example/t"'})
    )
    with fails("registry-unusable", scripted.host):
        read(client(scripted.host), text)


@pytest.mark.parametrize(
    "challenge", [{}, {"WWW-Authenticate": "Negotiate"}], ids=["none", "negotiate"]
)
def test_an_unknown_challenge(
    scripted: ScriptedRegistry, made: Made, client: Any, challenge: dict[str, str], fails: Any
) -> None:
    text = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", Status(401, challenge))
    with fails("registry-unusable", scripted.host):
        read(client(scripted.host), text)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Status(200, {}, b"{}"), "registry-unusable"),
        (Status(200, {}, b"<html>"), "image-damaged"),
        (Status(404), "host-busy"),
    ],
    ids=["empty", "page", "404"],
)
def test_a_token_server_without_a_token(
    scripted: ScriptedRegistry,
    made: Made,
    client: Any,
    home: Path,
    answer: Status,
    code: str,
    fails: Any,
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host)
    text = scripted.add("team/tool", "1", made)
    scripted.next("/token", answer)
    with fails(code, scripted.host):
        read(client(scripted.host), text)


def test_a_busy_token_server_is_asked_again(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path, slept: list[float]
) -> None:
    scripted.passwords, scripted.bearer = USERS, True
    log_in(home, scripted.host)
    text = scripted.add("team/tool", "1", made)
    scripted.next("/token", Status(429, {"Retry-After": "7"}))
    assert read(client(scripted.host), text) == made.digest
    assert sum(slept) == 7.0


def test_a_damaged_credentials_file(
    scripted: ScriptedRegistry, made: Made, client: Any, home: Path
) -> None:
    scripted.passwords = USERS
    text = scripted.add("team/tool", "1", made)
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text("{")
    with pytest.raises(PullError) as caught:
        read(client(scripted.host), text)
    assert caught.value.message.startswith(f"{home}/.docker/config.json ")


@pytest.mark.fault("odd-servers")
@pytest.mark.parametrize(
    "answer",
    [
        Status(401, {"WWW-Authenticate": 'Bearer realm="https://[::1"'}),
        Status(401, {"WWW-Authenticate": 'Bearer realm="no address"'}),
        Status(401, {"WWW-Authenticate": 'Bearer realm=""'}),
        Status(200, {"Content-Encoding": "gzip"}, b"this is no gzip"),
        Status(200, {}, b"[" * 200_000),
        Status(302),
        Status(302, {"Location": "http://[::1"}),
        Status(200, {"Content-Length": "many"}),
    ],
    ids=lambda answer: f"{answer.code} {str(answer.headers)[:40]} {answer.body[:9]!r}",
)
def test_odd_answers_name_the_registry(
    answer: Status, scripted: ScriptedRegistry, made: Made, client: Any
) -> None:
    text = scripted.add("team/tool", "1", made)
    scripted.next("/manifests/", *[answer] * 20)
    with pytest.raises(PullError) as raised:
        read(client(scripted.host), text)
    assert "127.0.0.1" in raised.value.message or "team/tool" in raised.value.message
