# SPDX-License-Identifier: Apache-2.0
"""The caller of the API: tokens, troubles that pass, those that do not, and what it says of
them.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from llmb.contract.cluster import UnclearError
from llmb.errors import LlmbError, describe
from llmb_runai import rest as module
from llmb_runai.rest import ATTEMPTS, RestClient
from llmb_runai.rest_errors import NotThereError, RefusedRequestError
from llmb_runai.runai_config import RunaiConfig, RunaiPvc
from llmb_runai.token import Credentials, find_credentials, read_token
from llmb_testing.ports import hold_port, number_of
from llmb_testing.runai import ControlPlane, Trouble

BODY = {
    "name": "a",
    "projectId": "4500001",
    "clusterId": "c1",
    "spec": {"image": "i", "command": "true"},
}


class Clock:
    """A clock that the test sets; how long it was slept."""

    def __init__(self) -> None:
        self.now, self.slept = 1.7e9, list[float]()

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, paper: ControlPlane) -> Clock:
    """The time of both the caller and the control plane."""
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    paper.clock = found.time
    return found


@pytest.fixture
def client(paper: ControlPlane) -> RestClient:
    return RestClient(paper.url + "/", Credentials(id="me", secret="s3cret"), first_pause=0.5)


def tokens(plane: ControlPlane) -> int:
    return sum(path.endswith("/token") for _, path in plane.requests)


def test_a_token_serves_until_it_is_about_to_end(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    for _ in range(10):
        client.get("/clusters")
    assert tokens(paper) == 1
    clock.now += 3600 - 60 - 1
    client.get("/clusters")
    assert tokens(paper) == 1
    clock.now += 2
    client.get("/clusters")
    assert tokens(paper) == 2
    assert 401 not in paper.answers


def test_a_token_that_lasts_less_than_a_minute_serves_for_half_of_it(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    paper.token_seconds = 10
    for _ in range(20):
        client.get("/clusters")
        clock.now += 1
    assert tokens(paper) == 4
    assert 401 not in paper.answers


def test_a_token_that_was_withdrawn_is_replaced_in_the_middle(
    client: RestClient, paper: ControlPlane
) -> None:
    client.get("/clusters")
    paper.expire_tokens()
    assert client.get("/clusters")[0]["name"] == "cluster-one"
    assert tokens(paper) == 2
    paper.expire_tokens()
    assert client.create("/workloads/trainings", BODY)["name"] == "a"
    assert len(paper.workloads) == 1


def test_threads_share_one_token(client: RestClient, paper: ControlPlane) -> None:
    threads = [threading.Thread(target=client.get, args=("/clusters",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tokens(paper) == 1
    assert paper.answers.count(200) == 9


def test_a_token_by_what_it_says_of_itself() -> None:
    assert read_token({}, 0.0) is None
    no_jwt = read_token({"accessToken": "x.y.z", "expiresIn": 1000}, 500.0)
    assert no_jwt is not None
    assert no_jwt.until == 1440.0
    # {"exp": 800}
    early = read_token({"accessToken": "h.eyJleHAiOiA4MDB9.s", "expiresIn": 1000}, 500.0)
    assert early is not None
    assert early.until == 740.0
    # our clock is ahead
    skewed = read_token({"accessToken": "h.eyJleHAiOiA4MDB9.s", "expiresIn": 1000}, 9000.0)
    assert skewed is not None
    assert skewed.until == 9940.0
    assert "eyJ" not in repr(skewed)


@pytest.mark.parametrize(
    ("versions", "is_key", "asked"),
    [
        ({1, 2}, True, ["/api/v2/token"]),
        ({2}, True, ["/api/v2/token"]),  # as it will be, once the deprecated address is gone
        ({1}, True, ["/api/v2/token", "/token"]),  # a control plane before 2.24
        ({1, 2}, False, ["/api/v2/token", "/token", "/token"]),  # an application's, gone in 3.0
        ({1}, False, ["/api/v2/token", "/token", "/token"]),
    ],
)
def test_every_release_gives_a_token(
    client: RestClient,
    paper: ControlPlane,
    clock: Clock,
    versions: set[int],
    is_key: bool,
    asked: list[str],
) -> None:
    paper.token_versions = versions
    paper.keys, paper.applications = ({"me": "s3cret"}, None) if is_key else ({}, {"me": "s3cret"})
    assert client.get("/clusters")
    assert [path for _, path in paper.requests if path.endswith("/token")] == asked
    clock.now += 3600  # the next token comes from where the first did
    client.get("/clusters")
    assert [path for _, path in paper.requests if path.endswith("/token")] == [*asked, asked[-1]]


def test_a_control_plane_without_any_token_address(
    client: RestClient, paper: ControlPlane, wording: Callable[..., None]
) -> None:
    paper.token_versions = set()
    with pytest.raises(LlmbError) as raised:
        client.get("/clusters")
    assert (raised.value.code, raised.value.key) == ("not-runai", "runai.base_url")
    wording("submit-all", describe(raised.value), {str(paper.url): "<url>"})


def test_a_storm_of_429_is_waited_out_as_long_as_it_asks(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    client.get("/clusters")
    paper.trouble(Trouble(answer=429, headers={"Retry-After": "7"}, times=3))
    client.get("/clusters")
    assert len(clock.slept) == 3
    assert all(7.0 <= seconds <= 7.0 * 1.3 for seconds in clock.slept)


def test_pauses_grow_where_nothing_is_asked(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    client.get("/clusters")
    paper.trouble(Trouble(answer=503, times=4))
    client.get("/clusters")
    for seconds, least in zip(clock.slept, (0.5, 1.0, 2.0, 4.0), strict=True):
        assert 0.5 * least <= seconds <= least


@pytest.mark.parametrize("date", ["Wed, 21 Oct 2037 07:28:00 GMT", "soon", "-3", "99999"])
def test_whatever_retry_after_says_the_pause_is_within_reason(
    client: RestClient, paper: ControlPlane, clock: Clock, date: str
) -> None:
    client.get("/clusters")
    paper.trouble(Trouble(answer=503, headers={"Retry-After": date}))
    client.get("/clusters")
    assert 0.25 <= clock.slept[0] <= 78.0


def test_a_server_that_stays_busy_is_reported(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    paper.trouble(Trouble(path="/clusters", answer=503, times=99))
    with pytest.raises(LlmbError) as raised:
        client.get("/clusters")
    assert paper.requests.count(("GET", "/clusters")) == ATTEMPTS
    assert (raised.value.code, raised.value.value) == ("runai-failed", 503)


def test_one_in_a_hurry_asks_once(paper: ControlPlane, clock: Clock) -> None:
    paper.trouble(Trouble(path="/clusters", answer=503, headers={"Retry-After": "60"}, times=99))
    hurried = RestClient(paper.url, Credentials(id="me", secret="s3cret"), is_hurried=True)
    with pytest.raises(LlmbError, match="503"):
        hurried.get("/clusters")
    assert paper.requests.count(("GET", "/clusters")) == 1
    assert clock.slept == []


def test_a_question_that_was_cut_is_asked_again(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    paper.trouble(Trouble(path="/clusters", answer="cut", times=2))
    assert client.get("/clusters")


@pytest.mark.parametrize("answer", ["lost", "cut", 502, 504])
def test_what_is_made_once_is_never_asked_for_twice(
    client: RestClient, paper: ControlPlane, clock: Clock, answer: Any
) -> None:
    paper.trouble(Trouble(path="/workloads/trainings", answer=answer))
    with pytest.raises(UnclearError):
        client.create("/workloads/trainings", BODY)
    assert paper.requests.count(("POST", "/workloads/trainings")) == 1
    assert len(paper.workloads) == (answer == "lost")


def test_what_was_surely_not_taken_is_asked_for_again(
    client: RestClient, paper: ControlPlane, clock: Clock
) -> None:
    paper.trouble(
        Trouble(path="/workloads/trainings", answer=429),
        Trouble(path="/workloads/trainings", answer=503),
    )
    client.create("/workloads/trainings", BODY)
    assert len(paper.workloads) == 1


def test_nobody_there(clock: Clock) -> None:
    with hold_port() as held:  # which nobody listens on
        lost = RestClient(
            f"http://127.0.0.1:{number_of(held)}/api/v1", Credentials(id="me", secret="s3cret")
        )
        with pytest.raises(LlmbError) as caught:
            lost.create("/workloads/trainings", BODY)
    assert (caught.value.code, caught.value.value) == ("host-unreachable", "refused")
    assert not isinstance(caught.value, UnclearError)
    # not as patient as with a server that has answered before
    assert len(clock.slept) < ATTEMPTS - 1


def test_answers_of_another_server(
    paper: ControlPlane, client: RestClient, wording: Callable[..., None]
) -> None:
    with pytest.raises(LlmbError) as raised:
        RestClient(paper.url.removesuffix("/v1"), Credentials(id="me", secret="s3cret")).get(
            "/clusters"
        )
    assert (raised.value.code, raised.value.key) == ("not-runai", "runai.base_url")
    with pytest.raises(LlmbError) as raised:
        list(client.pages("/workloads", "clusters"))
    assert raised.value.code == "not-runai"
    wording("submit-all", describe(raised.value), {str(paper.url): "<url>"})


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, RefusedRequestError, "runai-refused"),
        (403, LlmbError, "runai-denied"),
        (404, NotThereError, "not-found"),
        (409, RefusedRequestError, "runai-refused"),
        (500, LlmbError, "runai-failed"),
    ],
)
def test_each_refusal_says_why(
    client: RestClient,
    paper: ControlPlane,
    status: int,
    kind: type[LlmbError],
    code: str,
    wording: Callable[..., None],
) -> None:
    paper.trouble(Trouble(path="/clusters", answer=status, times=9))
    with pytest.raises(kind) as raised:
        client.get("/clusters")
    assert raised.value.code == code
    wording("submit-all", describe(raised.value))


def test_a_policy_is_reported_field_by_field(client: RestClient, paper: ControlPlane) -> None:
    paper.issues = lambda body: [
        {"field": "spec.compute.gpuDevicesRequest", "details": "at most 4"}
    ]
    with pytest.raises(RefusedRequestError) as raised:
        client.create("/workloads/trainings", BODY)
    issue = "spec.compute.gpuDevicesRequest: at most 4"
    assert (raised.value.code, raised.value.value) == ("policy", (issue,))


@pytest.mark.parametrize("applications", [None, {}])
def test_a_wrong_secret_is_not_shown(
    paper: ControlPlane, applications: dict[str, str] | None
) -> None:
    paper.applications = applications
    with pytest.raises(LlmbError) as raised:
        RestClient(paper.url, Credentials(id="me", secret="wr0ng")).get("/clusters")
    assert (raised.value.code, raised.value.key) == ("sign-in-refused", "me")
    assert (
        "wr0ng" not in f"{raised.value} {raised.value.hint} {Credentials(id='me', secret='wr0ng')}"
    )


def test_every_page_is_read(
    client: RestClient, paper: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 7)
    for number in range(23):
        client.create("/workloads/trainings", {**BODY, "name": f"w{number}"})
    listed = list(client.pages("/workloads", "workloads"))
    assert [one["name"] for one in listed] == [f"w{number}" for number in range(23)]
    assert paper.requests.count(("GET", "/workloads")) == 4


@pytest.mark.parametrize(
    ("environ", "app_id", "found"),
    [
        ({"APP_ID": "a", "APP_SECRET": "s"}, None, ("a", "s")),
        ({"APP_SECRET": "s"}, "configured", ("configured", "s")),
        ({"APP_ID": "mine", "APP_SECRET": "s"}, "configured", ("mine", "s")),
        (
            {"CLIENT_ID": "c", "CLIENT_SECRET": "k", "APP_ID": "a", "APP_SECRET": "s"},
            None,
            ("c", "k"),
        ),
    ],
)
def test_credentials_by_their_names(
    environ: dict[str, str], app_id: str | None, found: tuple[str, str]
) -> None:
    pvc = RunaiPvc(name="w", path="/w", claim="c")
    runai = RunaiConfig(base_url="https://h/api/v1", project="p", pvc=pvc, app_id=app_id)
    credentials = find_credentials(runai, environ)
    assert (credentials.id, credentials.secret) == found


@pytest.mark.parametrize(
    ("environ", "missing"), [({}, "APP_SECRET"), ({"APP_SECRET": "s"}, "APP_ID")]
)
def test_missing_credentials(
    environ: dict[str, str], missing: str, wording: Callable[..., None]
) -> None:
    pvc = RunaiPvc(name="w", path="/w", claim="c")
    with pytest.raises(LlmbError) as raised:
        find_credentials(RunaiConfig(base_url="https://h/api/v1", project="p", pvc=pvc), environ)
    assert (raised.value.code, raised.value.key) == ("secret-missing", missing)
    wording("submit-all", describe(raised.value))
