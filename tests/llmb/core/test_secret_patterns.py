# SPDX-License-Identifier: Apache-2.0
"""Tests of secrets in texts: the forms that services and tools write are found, ordinary lines stay
as they are.
"""

import pytest

from llmb.core.secret_patterns import SECRET, hide, looks_secret, without_secrets

HEX = "5555aaaa0123456789abcdef5555aaaa01234567"
SLACK = "xox" + "b-123456789012-1234567890123-AbCdEfGhIjKlMnOp"
GITHUB = "github" + "_pat_11ABCDEFG0abcdefghij_klmnopqrstuvwxyz0123456789"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
BASIC = "JG9hdXRodG9rZW46bnZhcGktYWJj"  # $oauthtoken:nvapi-abc
BODY = "\n".join(["b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ" * 2] * 3)
BLOCK = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{BODY}\n-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("srun app --password hunter3secret -v", "srun app --password <> -v"),
        ("got token: k9x0vv2lqq81 and", "got token: <> and"),
        ("secret=k9x0vv2lqq81 passphrase=k9x0vv2lqq81", "secret=<> passphrase=<>"),
        ("token=abcd12 and token=abc12", "token=<> and token=abc12"),
        ("gpg --passphrase k9x0vv2lqq81 -d x", "gpg --passphrase <> -d x"),
        ("slack app xapp-" + "1-A012345678", "slack app <>"),
        ("https://discord.com/api/webhooks/12345678/" + "a1" * 10, None),
        ("password=abc12 token=abc12", "password=<> token=abc12"),
        ("app --password=hunter3 --token 'abcdef123'", "app --password=<> --token '<>'"),
        ("app --hf-token abcdef123 --api-key abcdef123", "app --hf-token <> --api-key <>"),
        ('["--password", "hunter3", "-v"]', '["--password", "<>", "-v"]'),
        ('[\n  "--wandb_key",\n  "x",\n  "--token",\n  "abcdef123"\n]', None),
        ("['--token', 'abcdef123']", "['--token', '<>']"),
        ('app --password "hunter3 and more" x', 'app --password "<>" x'),
        (
            "echo abcdef123 | docker login -u me --password-stdin x",
            "echo <> | docker login -u me --password-stdin x",
        ),
        (f"wandb login {HEX}", "wandb login <>"),
        (
            "ENV HF_TOKEN abcdef123\nsetenv HF_TOKEN abcdef123",
            "ENV HF_TOKEN <>\nsetenv HF_TOKEN <>",
        ),
        ('os.environ["HF_TOKEN"] = "abcdef123"', 'os.environ["HF_TOKEN"] = "<>"'),
        ("docker login -u me -p s3cr nvcr.io", "docker login -u me -p <> nvcr.io"),
        ("podman login nvcr.io -p s3cr", "podman login nvcr.io -p <>"),
        ("curl -u me:pa55 https://host/x", "curl -u me:<> https://host/x"),
        (
            "machine nvcr.io login $oauthtoken password abcdef123",
            "machine nvcr.io login $oauthtoken password <>",
        ),
        (f"before\n{BLOCK}\nafter", "before\n<>\nafter"),
        (BLOCK.replace("OPENSSH ", "").replace("\n", "\\n"), "<>"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\nTraining epoch 0", "<>\nTraining epoch 0"),
        ("\n".join(f"0: {line}" for line in BLOCK.split("\n")), "0: <>"),
        (f"slack {SLACK}!", "slack <>!"),
        (f"wandb: (1) key {HEX}", "wandb: (1) key <>"),
        (f"Your API key is {HEX}", "Your API key is <>"),
        ("Authorization: Bearer abcdef123.x", "Authorization: Bearer <>"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic <>"),
        ("'Authorization': 'Bearer abcdef123'", "'Authorization': 'Bearer <>'"),
        ("got hf_" + "abcdefghijklmnopqrst", "got <>"),
        ("got nvapi-" + "abcdefghij_klmnop-rst", "got <>"),
        ("got ghp_" + "a1" * 18 + f" and {GITHUB}", "got <> and <>"),
        ("glpat-" + "abcdefghij0123456789", "<>"),
        (f"id {AWS}\naws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None),
        ("pulled https://me:pa55word@host/x", "pulled https://<>@host/x"),
        ("https://ghtoken0123456789abcdef@github.com/x", "https://<>@github.com/x"),
        ("https://s3/x?sig=abcdefgh%2Bijkl&v=1", "https://s3/x?sig=<>&v=1"),
        ("WANDB_API_KEY: 0123456789abcdef", "WANDB_API_KEY: <>"),
        ("WANDB_API_KEY: |-\n  0123456789abcdef\nx: 1", "WANDB_API_KEY: |-\n  <>\nx: 1"),
        ('"WANDB_API_KEY":\n    "0123456789abcdef"', '"WANDB_API_KEY":\n    "<>"'),
        (r'"{\"HF_TOKEN\": \"abcdef123\"}"', r'"{\"HF_TOKEN\": \"<>\"}"'),
        ("- name: HF_TOKEN\n  value: abcdef123\n", "- name: HF_TOKEN\n  value: <>\n"),
        ('{"name": "HF_TOKEN", "value": "abcdef123"}', '{"name": "HF_TOKEN", "value": "<>"}'),
        ("password='two words here' x=1", "password='<>' x=1"),
        ("DB_PASSWORD=123456", "DB_PASSWORD=<>"),
        ("app --password 123456 --passphrase=654321", "app --password <> --passphrase=<>"),
        ('["--password", "123456"]', '["--password", "<>"]'),
        ("docker login -u me -p 123456 nvcr.io", "docker login -u me -p <> nvcr.io"),
        ("podman login nvcr.io -p=123456", "podman login nvcr.io -p=<>"),
        ("sshpass -p 123456 ssh gpu1", "sshpass -p <> ssh gpu1"),
        ("curl -u me:123456 https://host/x", "curl -u me:<> https://host/x"),
        (
            "echo 123456 | docker login -u me --password-stdin x",
            "echo <> | docker login -u me --password-stdin x",
        ),
        ("machine nvcr.io login me password 123456", "machine nvcr.io login me password <>"),
        ("default login me password 123456", "default login me password <>"),
        (f'"auths": {{"nvcr.io": {{"auth": "{BASIC}"}}}}', '"auths": {"nvcr.io": {"auth": "<>"}}'),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_x", "<>"),
        (
            "the_token: HF_TOKEN=abcdef123 note: API_KEY=abcdef123",
            "the_token: HF_TOKEN=<> note: API_KEY=<>",
        ),
        ("apiKey: abcdef123 passphrase=abcdef123", "apiKey: <> passphrase=<>"),
        (
            "app --api_key abcdef123 --wandb_api_key abcdef123",
            "app --api_key <> --wandb_api_key <>",
        ),
        ("app --secret_key abcdef123 --api-key=abcdef123", "app --secret_key <> --api-key=<>"),
        ("X-Api-Key: abcdef123", "X-Api-Key: <>"),
        ("api-key: abcdef123 API-KEY=abcdef123", "api-key: <> API-KEY=<>"),
        ("Läufe: HF_TOKEN=abcdef123 İ", "Läufe: HF_TOKEN=<> İ"),
    ],
)
def test_forms_of_secrets(text: str, expected: str | None) -> None:
    hidden, found = hide(text)
    assert found
    if expected is not None:
        assert hidden == expected.replace("<>", SECRET)
    for secret in (
        "hunter3",
        "abcdef123",
        "123456",
        "654321",
        "0123456789abcdef",
        "b3Blbn",
        "wJalr",
        AWS,
        "pa55",
    ):
        assert secret not in hidden


@pytest.mark.parametrize(
    "line",
    [
        "gpu17:4321:4321 [0] NCCL INFO Channel 03/0 : 17[7] -> 24[0] [receive] via NET/IB/3/GDRDMA",
        (
            "Training epoch 0, iteration 49/49 | reduced_train_loss: 11.96 | train_step_timing in"
            " s: 12.39 | tokens_per_sec_per_gpu: 12345.6"
        ),
        "tokens: 123456789 max_token = 8192000 time_per_token=1.23e-05 loss_per_token: 0.123456",
        "app --pad-token 128004 --per-gpu-token 8192 --tokens-per-batch 4096",
        "pad_token='[PAD]' eos_token: <|endoftext|> bos_token=<s> image_token=image12345",
        f"sha256:{HEX}{HEX[:24]} commit {HEX} md5 {HEX[:32]}",
        f"nvcr.io/nvidia/nemo@sha256:{HEX}{HEX[:24]}",
        f"cache key: sha256:{HEX}",
        "Missing key: decoder.layers.0.self_attention.linear_proj.weight",
        "HF_TOKEN=$HF_TOKEN WANDB_API_KEY=${WANDB_API_KEY} --token $HF_TOKEN token: None",
        "--password-stdin nvcr.io",
        "HF_TOKEN: 'HF_TOKEN' is missing",
        "does not sign in with this secret: invalid client credentials",
        "vboost: set on 15 of 16 nodes: sudo: a password is required",
        "https://docs.nvidia.com/x?page=2 and tcp://10.0.0.1:29500 git@github.com:NVIDIA/NeMo.git",
        "tokenizer: meta-llama/Llama-3.1-8B, tokenizer_type=HuggingFaceTokenizer",
        "key=value keys: a, b; monkey: climbing; keyword=abcdefgh",
        "mkdir -p /lustre/x; docker run -p 8080:80 image; srun -p batch login01",
        "task-with-a-very-long-name-of-many-words risk-averse-decisions-and-more",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_ordinary_lines_stay(line: str) -> None:
    assert hide(line) == (line, 0)


@pytest.mark.parametrize(
    "word",
    [
        *("none", "null", "true", "false", "required", "unset", "missing", "<password>", "******"),
        *("not", "nan", "inf", "$DB_PASSWORD", "0.5"),
    ],
)
def test_a_word_for_no_value_stays(word: str) -> None:
    assert hide(f"DB_PASSWORD={word}") == (f"DB_PASSWORD={word}", 0)


@pytest.mark.parametrize(
    "shortest", ["xoxb-" + "a1b2c3d4e5", "hf_" + "a1b2c3d4e5f6g7h8", "sk-" + "a1b2c3d4e5f6g7h8i9j0"]
)
def test_the_shortest_tokens_are_found(shortest: str) -> None:
    assert hide(f"got {shortest}") == (f"got {SECRET}", 1)
    assert hide(f"got {shortest[:-1]}") == (f"got {shortest[:-1]}", 0)


@pytest.mark.parametrize(
    "name",
    ["pad", "eos", "bos", "unk", "mask", "sep", "cls", "eod", "sot", "eot", "image", "per", "a"],
)
def test_tokens_of_a_tokenizer_stay(name: str) -> None:
    assert hide(f"{name}_token=abcdef123") == (f"{name}_token=abcdef123", 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"SCHEDULE","value":"abcdef123"}',
        "- name: HF_TOKEN\n  value: $HF_TOKEN\n",
        "ENV SCHEDULE abcdef123",
        "ENV HF_TOKEN $HF_TOKEN",
    ],
)
def test_other_variables_and_placeholders_of_a_list_stay(text: str) -> None:
    assert hide(text) == (text, 0)


def test_variables_without_those_that_are_secret_by_name_or_value() -> None:
    values = {"NCCL_ALGO": "Ring", "HF_TOKEN": "x", "PROXY": "https://me:pa55@host", "KEYS": "a"}
    assert without_secrets(values) == {"NCCL_ALGO": "Ring", "KEYS": "a"}


def test_values_that_look_secret() -> None:
    assert all(looks_secret(value) for value in ("https://me:pa55@host", AWS, SLACK, BLOCK))
    assert not any(looks_secret(value) for value in ("https://host/x", "sha256:" + HEX, "8"))


def test_secrets_in_a_long_text_are_found_where_they_are() -> None:
    line = "gpu17:4321:4321 [0] NCCL INFO Channel 03/0\n"
    text = f"{line * 5000}HF_TOKEN=abcdef123\n{line * 5000}--token\nabcdef456\n"
    assert hide(text) == (text.replace("abcdef123", SECRET).replace("abcdef456", SECRET), 2)


# One of each form, built of parts so that no scanner takes this file for a leak.
PLANTED = {
    "DB_PASS": "DB_PASS={}",
    "SMTP_PWD": "export SMTP_PWD={}",
    "ROOT_PW": "ROOT_PW: {}",
    "S3_CREDS": "S3_CREDS='{}'",
    "REGISTRY_AUTH": '"REGISTRY_AUTH": "{}"',
    "option": "app --db-pass {} --verbose",
    "environment": "ENV SMTP_PWD {}",
    "listed": "- name: S3_CREDS\n  value: {}\n",
    "coloured name": "\x1b[32mHF_TOKEN\x1b[0m=\x1b[33m{}\x1b[0m",
    "coloured word": "\x1b[1mHF_\x1b[7mTOKEN\x1b[0m: {}",
    "next line": "HF_TOKEN:\n  {}\n",
    "next line of a shell": "HF_TOKEN=\\\n{}\n",
    "next line of a rank": "0: password:\n0: {}\n",
    "listed in a line": '[{{"name":"HF_TOKEN","value":"{}"}}]',
    "listed in an escaped line": r"[{{\"name\":\"HF_TOKEN\",\"value\":\"{}\"}}]",
    "a token without a user": "curl -sS -u :{} https://host/x",
    "cookie": "< Set-Cookie: session={}; Path=/; HttpOnly",
    "cookies": "> Cookie: theme=dark; sid={}",
    "cookie as data": "{{'Set-Cookie': 'session={}'}}",
    "account": "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=y",
    "url": "GET https://host/v1/models?key={}&alt=json",
    "second in a url": "GET https://host/v1/models?alt=json&auth={}",
}
VALUE = "q7Rz93" + "LmWx20Tb"
SHAPES = {
    "Hugging Face, organization": "api_org" + "_abcdefghijklmnopqrstuvwxyzabcdefgh",
    "NVIDIA, in base64": "JG9hdXRodG9rZW4" + "6bnZhcGktYWJjZGVmZ2g=",
    **{f"GitHub, {kind}": f"gh{kind}_" + "a1B2c3D4e5F6" * 3 for kind in "pousr"},
    **{
        f"GitLab, {kind}": f"gl{kind}-" + "abcdefghij0123456789"
        for kind in ("pat", "dt", "rt", "ptt", "cbt", "soat", "ft", "agent")
    },
    "Slack": "https://hooks.slack.com/services/" + "T0123456789B0123456789" + "a1B2c3D4" * 3,
    **{f"AWS, {kind}": kind + "IOSFODNN7EXAMPLE" for kind in ("AKIA", "ASIA", "ABIA", "ACCA")},
    "Google": "AIza" + "SyA-0123456789abcdefghijklmnopqrstu",
    "Google, of a session": "ya29" + ".a0AfB_abcdefghijklmnopqrstuvwxyz",
    "Docker": "dckr" + "_pat_abcdefghij0123456789abcdefg",
    "W&B": "wandb" + "_v1_abcdefghij0123456789",
    "npm": "npm" + "_abcdefghij0123456789abcdefghij012345",
    "PyPI": "pypi" + "-AgEIcHlwaS5vcmcCJGFiY2RlZmdoaWprbG1ub3A",
    "sk-": "sk" + "-proj-abcdefghij0123456789",
    "Vault": "hvs" + ".CAESIJ0123456789abcdefghij",
    "Databricks": "dapi" + "0123456789abcdef" * 2,
    "Databricks, with a version": "dapi" + "0123456789abcdef" * 2 + "-2",
    "Vault, batch": "hvb" + ".AAAAAQJ0123456789abcdefghij",
    "Vault, recovery": "hvr" + ".AAAAAQJ0123456789abcdefghij",
    "SendGrid": "SG" + ".abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789",
    "Stripe": "sk" + "_live_abcdefghij0123456789",
    "Stripe, restricted": "rk" + "_live_abcdefghij0123456789",
    "Stripe, of a test": "sk" + "_test_abcdefghij0123456789",
    **{f"DigitalOcean, {kind}": f"do{kind}" + "_v1_" + "0123456789abcdef" * 4 for kind in "opr"},
    **{
        f"Shopify, {kind}": f"shp{kind}_" + "0123456789abcdef" * 2
        for kind in ("at", "ca", "pa", "ss")
    },
    "Grafana, cloud": "glc" + "_eyJvIjoiMTIzNDU2IiwibiI6ImFiY2QiLCJrIjoi",
    "Perplexity": "pplx" + "-" + "abcdefgh01234567" * 3,
    "xAI": "xai" + "-" + "abcdefgh01234567" * 5,
    "Sentry, organization": "sntrys" + "_eyJpYXQiOjE2OTAwMDAwMDAuMCwidXJsIjoi",
    "Sentry, user": "sntryu" + "_" + "0123456789abcdef" * 4,
    "Linear": "lin" + "_api_" + "abcdefghij0123456789" * 2,
    "Notion": "ntn" + "_" + "abcdefghij0123456789" * 2,
    "Postman": "PMAK" + "-0123456789abcdef01234567-" + "0123456789abcdef01" * 2,
    "Artifactory, reference": "cmVmdGtu" + "OjAxOjAwMDAwMDAwMDA6YWJjZGVmZ2hpamtsbW5vcHFyc3Q",
    "Grafana": "glsa" + "_abcdefghijklmnopqrstuvwxyz012345_0123abcd",
    "Groq": "gsk" + "_" + "abcdefghij0123456789" * 2,
    "Replicate": "r8" + "_" + "abcdefghij0123456789" * 2,
    "Tailscale": "tskey" + "-auth-abcdefghijk-0123456789abcdef",
    "age": "AGE-SECRET" + "-KEY-1" + "QPZRY9X8GF2TVDW0S3JN" * 3,
    "Telegram": "123456789" + ":AA" + "abcdefghijk" * 3,
    "Artifactory": "AKCp" + "abcdefghij0123456789" * 3,
    "Neptune": "eyJhcGlf" + "YWRkcmVzcyI6Imh0dHBzOi8vYXBwLm5lcHR1bmUuYWki",
    "Discord": "https://discord.com/api/webhooks/123456789012345678/" + "abcdefghij" * 4,
}


@pytest.mark.parametrize("form", PLANTED)
@pytest.mark.parametrize("around", ["{}", "step 1\n{}\nstep 2", "[rank3]: {}"])
def test_no_planted_secret_stays(form: str, around: str) -> None:
    hidden, found = hide(around.format(PLANTED[form].format(VALUE)))
    assert found
    assert VALUE not in hidden
    assert hide(hidden)[0] == hidden


@pytest.mark.parametrize(
    "name",
    [
        *("sig", "signature", "X-Amz-Signature", "X-Amz-Credential", "key", "auth", "code", "pass"),
        "pwd",
    ],
)
def test_the_values_of_a_signed_address_are_replaced(name: str) -> None:
    for before in ("?", "?page=1&"):
        text = f"GET https://host/x{before}{name}={VALUE}&v=1"
        assert hide(text) == (text.replace(VALUE, SECRET), 1)


@pytest.mark.parametrize(
    "option",
    [
        *("--password", "--passwd", "--passphrase", "--token", "--secret", "--api-key", "--apikey"),
        *("--access-key", "--secret-key", "--account-key", "--credential", "--credentials"),
        *("--db-pass", "--db-pwd", "--db-pw", "--db-creds", "--db-auth", "-token"),
    ],
)
def test_the_value_of_an_option_for_a_secret_is_replaced(option: str) -> None:
    assert hide(f"app {option} {VALUE} x") == (f"app {option} {SECRET} x", 1)


@pytest.mark.parametrize(
    "program",
    [
        *("docker", "podman", "nerdctl", "helm registry", "oras", "skopeo", "apptainer remote"),
        *("singularity remote", "ngc registry"),
    ],
)
def test_the_password_of_a_login_is_replaced(program: str) -> None:
    assert hide(f"{program} login -u me -p {VALUE} host") == (
        f"{program} login -u me -p {SECRET} host",
        1,
    )


@pytest.mark.parametrize("service", SHAPES)
def test_no_token_of_a_fixed_shape_stays(service: str) -> None:
    secret = SHAPES[service]
    for text in (secret, f"got {secret}, then", f"\x1b[31m{secret}\x1b[0m"):
        hidden, found = hide(text)
        assert found, text
        assert secret.rpartition("/")[2] not in hidden


@pytest.mark.parametrize(
    "line",
    [
        "PWD=/lustre/me/folder OLDPWD=/lustre/me/other SLURM_SUBMIT_DIR=/lustre/me",
        "forward_pass: 12.5 backward_pass=30.1 auth: none",
        "missing secret:\n  Traceback (most recent call last):\n  File x",
        "max_token:\n8192\ntotal tokens:\n123456",
        "key:\n  name: value\nsecret:\n  nested: mapping",
        "exit code=12345678 https://host/x?code=1&page=2",
        "a_v1_b n[1-4] r8_1 xai-2 sg.x dapip",
        "\x1b[32mINFO\x1b[0m tokenizer: \x1b[1mmeta-llama\x1b[0m",
    ],
)
def test_lines_that_look_alike_stay(line: str) -> None:
    assert hide(line) == (line, 0)
