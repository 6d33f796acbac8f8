# SPDX-License-Identifier: Apache-2.0
"""Finds secrets in texts, with one list of forms for logs, configurations and variables. Pure.

The forms are those that the services document and that public scanners look for. Only the lines
near a word that every form contains are searched, as the logs of a night have few of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from llmb.core.secrets import is_secret_name

SECRET = "<secret>"
_LEAST = 6  # characters of a value, but of a password
# lines after such a word that are searched: a value may follow its name on a line of its own
_LINES = 3

_BLOCK = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^\0]{0,20000}?-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    # A log that ends before the key does: the lines of base64, each perhaps after the number of a
    # rank.
    r"|(?:(?:\s|\\n|\[?\w{1,12}\]?: ?){0,4}[A-Za-z0-9+/=]{16,})*)"
)
# Tokens that services mark.
_MARKED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|nvapi-[\w-]{16,}|JG9hdXRodG9rZW4[\w+/]{8,}={0,2}"  # NVIDIA; "$oauthtoken:KEY" in base64
    # GitHub, GitLab
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|gl(?:pat|dt|rt|ptt|cbt|soat|ft|agent)-[\w-]{20,}"
    r"|xox[a-z]-[\w-]{10,}|xapp-\d-[\w-]{10,}"  # Slack
    r"|(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])"  # AWS
    r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}"  # Google
    r"|sk-[\w-]{20,}|dckr_pat_[\w-]{16,}|wandb_v\d_\w{16,}|npm_[A-Za-z0-9]{30,}|pypi-AgEI[\w-]{30,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"  # a JSON web token
    r"|eyJhcGlf[\w+/=-]{30,}"  # Neptune
    r"|hv[sbr]\.[\w-]{20,}|dapi[0-9a-f]{32}(?:-\d)?(?!\w)"  # Vault, Databricks
    r"|SG\.[\w-]{16,32}\.[\w-]{16,64}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"  # SendGrid, Stripe
    # DigitalOcean, Shopify, Grafana
    r"|do[opr]_v1_[0-9a-f]{32,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|gl(?:sa|c)_[\w=+/-]{32,}"
    r"|gsk_[A-Za-z0-9]{32,}|r8_[A-Za-z0-9]{32,}|pplx-[A-Za-z0-9]{32,}|xai-[A-Za-z0-9]{32,}"
    r"|tskey-[a-z]{2,12}-[\w-]{16,}|sntry[su]_[\w+/=-]{32,}|AGE-SECRET-KEY-1[0-9A-Z]{40,}"
    r"|lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{30,}|PMAK-[0-9a-f]{24}-[0-9a-f]{30,}"
    r"|cmVmdGtu[A-Za-z0-9+/]{40,}={0,2}|AKCp[A-Za-z0-9]{40,}"  # Artifactory
    r"|\d{8,10}:AA[\w-]{33}(?![\w-])"  # Telegram
    r")|(?<=hooks\.slack\.com/services/)[\w/]{20,}"
    r"|(?<=discord\.com/api/webhooks/)\d{8,}/[\w-]{20,}"
)
# Where only the value after these words is secret: the whole match is replaced.
_AFTER = re.compile(
    r"(?<=://)[^\s/@:'\"<]*:[^\s/@'\"<]+(?=@)"  # a URL's user and password
    r"|(?:(?<=http://)|(?<=https://))[^\s/@:'\"<]{8,}(?=@)"  # a token in a URL
    r"|(?i:(?<=bearer )[\w.~+/=-]{8,}|(?<=authorization: basic )[\w+/=-]{8,}|(?<=authorization:"
    r" token )[\w-]{8,})"
    r"|(?i:(?<=[?&]sig=)|(?<=[?&]signature=)|(?<=x-amz-signature=)|(?<=x-amz-credential=)"
    r"|(?<=[?&]key=)|(?<=[?&]auth=)|(?<=[?&]code=)|(?<=[?&]pass=)|(?<=[?&]pwd=))[^\s&\"'<]{8,}"
)
_WORD = (
    r"(?i:(?:[\w-]*[_-])?(?:password|passwd|passphrase|token|secret"
    r"|(?:api|access|secret|account)[_-]?key|credentials?)"
    r"|[\w-]*[_-](?:pass|pwd|pw|creds|auth))"
)
# --password VALUE, also as two items of a list: "--password", "VALUE".
_OPTION = re.compile(
    rf"(?<![\w-])(--?{_WORD})((?:\\*[\"'],?|,)?\s{{1,40}})"
    rf"(?:\\*[\"']([^\"'\n\\]{{3,}})|([^\s\"'\\,;]{{3,}}))"
)
_LOGIN = re.compile(
    r"((?:docker|podman|nerdctl|helm|oras|skopeo|apptainer|singularity|ngc)"
    r"\s[^\n]{0,80}?\blogin\s[^\n]{0,200}?"
    r"(?<=\s)-p(?:\s+|=)?[\"']?)([^\s\"'<]{3,})"
    r"|((?<!\S)(?:curl|wget)\s(?:[^\n]{0,400}?\s)?(?:-u|--user)["
    r" =][\"']?[^\s:\"']{0,100}:)([^\s\"'<]{3,})"
    # .netrc
    r"|(\b(?:machine|login)\s+\S{1,200}\s{1,20}"
    r"(?:login\s+\S{1,200}\s{1,20})?password\s{1,20})([^\s<]{3,})"
    r"|(\becho\s+(?:-n\s+)?[\"']?)([^\s\"'<$|]{3,})(?=[\"']?\s*\|[^\n]{1,200}--password-stdin)"
    r"|(\bsshpass\s+-p\s*[\"']?)([^\s\"'<]{3,})"
)
# `wandb: (1) key 5555...`, `API key is ...`: 32 or more hexadecimal digits after such a word.
_HASH = re.compile(
    r"((?i:\b(?:key|token|secret|password|login)\b(?: is| was)?)["
    r" :=]+[\"'`]?)([0-9a-fA-F]{32,})(?!\w)"
)
_NAME = (
    r"(?i:\w*(?:token|secret|password|passwd|passphrase|credentials?|key"
    r"|(?:api|access|secret|account)-key"  # of a header: X-Api-Key
    r"|_pass|_pwd|_pw|_creds|_auth))"
)
# NAME=value, NAME: value, "NAME": "value", also with \" and a value below its name; the name
# decides.
_NAMED = re.compile(
    rf"(?<![\w$])({_NAME})"
    r"(\\*[\"']?\s?(?:=>|:=|=|:)\s?(?=\S|\s+\\*[\"'])(?:\s+(?=\\*[\"']))?|:\s*[|>][-+]?\n[ \t]+)"
    r"(?:(\\*[\"'])([^\"'\n\\]{3,})|([^\s\"',;\\]{3,}))"
)
# NAME: or NAME= at the end of a line, and one word alone on the next.
_BELOW = re.compile(
    rf"(?<![\w$])({_NAME})(\\*[\"']?\s?(?:=>|:=|=|:)[ \t]*\\?[ \t]*\r?\n[ \t]*(?:\w{{1,12}}: ?)?)"
    r"([^\s\"',;:\\]{3,})(?=[ \t]*(?:[\r\n]|\Z))"
)
_OPEN_END = re.compile(r"[:=>][ \t]*\\?[ \t]*\r?\n")
# Cookies carry the session of whoever is signed in.
_COOKIE = re.compile(r"((?i:\b(?:set-)?cookie2?)\\*[\"']?\s?[:=]\s?\\*[\"']?)([^\r\n\"'\\<]{3,})")
# ENV NAME VALUE, setenv NAME VALUE, os.environ["NAME"] = "VALUE".
_SET = re.compile(
    r"(\b(?:ENV|setenv|env)\s{1,9}|environ\[[\"'])(\w+)"
    r"([\"']\]\s?=\s?[\"']|\s{1,9}[\"']?)([^\s\"',;\\]{3,})"
)
# A list of variables, as Kubernetes writes it: name: NAME and value: VALUE.
_LISTED = re.compile(
    r"(\bname\\?[\"']?\s?[:=]\s?\\?[\"']?)(\w+)"
    r"(\\?[\"']?(?:,\s{0,80}|\s{1,80})(?:- )?\\?[\"']?value\\?[\"']?\s?[:=]\s?\\?[\"']?)"
    r"([^\s\"',;\\]{3,})"
)
# the credentials file of Docker
_AUTH = re.compile(r"(\\?[\"']auth\\?[\"']\s?:\s*\\?[\"'])([\w+/=-]{8,})")
# fmt: off
_WORDS = (
    "token", "secret", "passw", "passphrase", "credential", "key", "bearer", "authorization",
    'auth"', "auth\\", "auth'", "login", "://", "hf_", "api_org_", "nvapi-", "jg9hdxro", "ghp_",
    "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "glrt-", "glptt-", "glcbt-",
    "glsoat-", "glft-", "glagent-", "xox", "xapp-", "hooks.slack", "akia", "asia", "abia", "acca",
    "aiza", "ya29.", "sk-", "dckr_pat", "wandb_v", "npm_", "pypi-ag", "eyj", "sig=", "signature=",
    "x-amz-", "curl", "wget", "sshpass", "_pass", "_pwd", "_pw", "_creds", "_auth", "-pass", "-pwd",
    "-pw", "-creds", "-auth", "cookie", "?auth=", "&auth=", "code=", "pass=", "pwd=", "hvs.",
    "hvb.", "hvr.", "dapi", "sg.", "k_live_", "k_test_", "_v1_", "shpat_", "shpca_", "shppa_",
    "shpss_", "glsa_", "glc_", "gsk_", "r8_", "pplx-", "xai-", "sntrys_", "sntryu_",
    "lin_api_", "ntn_",
    "pmak-", "cmvmdgtu", "akcp", ":aa", "discord.com",
)
# fmt: on
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# Values that are no secrets: placeholders, numbers of metrics, and words that mean no value.
_NO_VALUE = re.compile(
    r"<.*|\$.*|\*+|[-+]?[\d.,_]*\d(?:[eE][-+]?\d+)?(?:ms|us|s|%)?|\[.*|\(.*|\{.*|\|.*|sha\d+:.*"
    r"|(?i:none|null|true|false|required|unset|missing|not|nan|inf)"
)
_PASSWORD = re.compile(r"(?i:pass(?:word|wd|phrase)|[_-](?:pass|pwd|pw)\b)")
_RANDOM = re.compile(r"(?=\D*\d)[\w+/=-]{16,}")
_NO_NAME = re.compile(
    r"(?i:(?:pad|eos|bos|unk|mask|sep|cls|eod|sot|eot|image|per|a|the)_token|tokens?_per_\w+)"
)


def hide(text: str) -> tuple[str, int]:
    """The text with SECRET instead of each secret, and how many it had."""
    total = 0
    if "PRIVATE KEY" in text:
        text, total = _BLOCK.subn(SECRET, text)
    parts: list[str] = []
    end = 0
    for start, stop in _places(text):
        part, count = _hidden_in_colours(text[start:stop])
        parts += (text[end:start], part)
        end, total = stop, total + count
    return "".join([*parts, text[end:]]), total


def holds_secret(name: str, value: str) -> bool:
    """Return True if a variable is a secret by its name, or its value looks like a token."""
    return is_secret_name(name) or looks_secret(value)


def without_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Return ``values`` without those that hold a secret by their name or their value."""
    return {name: value for name, value in values.items() if not holds_secret(name, value)}


def looks_secret(value: str) -> bool:
    """Return True if a value looks like a secret: a marked token, a URL with a password."""
    return any(form.search(value) for form in (_MARKED, _AFTER, _BLOCK))


def _places(text: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches that may have secrets: lines with one of _WORDS and the lines after.

    They are sorted and do not overlap.
    """
    lower = text.lower() if text.isascii() else text.translate(_LOWER)
    start = stop = -1
    for place in sorted(lines_with(lower, _WORDS)):
        if place > stop:
            if stop >= 0:
                yield start, stop
            start = place
        stop = _after_lines(lower, place)
    if stop >= 0:
        yield start, stop


def lines_with(text: str, words: Iterable[str]) -> set[int]:
    """Return the places at which the lines begin that have one of ``words``."""
    starts: set[int] = set()
    for word in words:
        place = text.find(word)
        while place >= 0:
            starts.add(text.rfind("\n", 0, place) + 1)
            line_end = text.find("\n", place)
            place = text.find(word, line_end) if line_end >= 0 else -1
    return starts


def _after_lines(text: str, place: int) -> int:
    """The end of the line at ``place`` and of _LINES more."""
    for _ in range(_LINES + 1):
        place = text.find("\n", place) + 1
        if place == 0:
            return len(text)
    return place


def _hidden_in_colours(text: str) -> tuple[str, int]:
    """``_hidden``, without the colours of lines with colours between a name and its value."""
    part, count = _hidden(text)
    if "\x1b" in text:
        bare, bare_count = _hidden(_COLOUR.sub("", text))
        if bare_count != count:
            return bare, bare_count
    return part, count


def _hidden(text: str) -> tuple[str, int]:
    """``hide`` for lines that may have secrets."""
    total = 0

    def last_group(match: re.Match[str]) -> str:
        """The match with SECRET instead of its last group."""
        nonlocal total
        value = match[match.lastindex or 0]
        # A password may consist of digits only.
        is_password = match.re is _LOGIN or _PASSWORD.search(match[0])
        if _NO_VALUE.fullmatch(value) and not (value.isdecimal() and is_password):
            return match[0]
        total += 1
        return match[0][: match.start(match.lastindex or 0) - match.start()] + SECRET

    def named(match: re.Match[str]) -> str:
        """Do the same if the name is that of a secret."""
        nonlocal total
        name, value = match[1], match[4] or match[5]
        is_sentence = (
            match[5]
            and match[2].endswith(": ")
            and value.isalpha()
            and value.islower()
            and name.islower()
        )
        # `sign in with this secret: invalid credentials`
        if is_sentence and not _PASSWORD.search(name):
            return match[0]
        if not _is_secret(name) or _NO_NAME.fullmatch(name) or not _can_be_value(name, value):
            return match[0][: -len(value)] + _NAMED.sub(named, value)  # it may be `key: NAME=value`
        total += 1
        return match[0][: -len(value)] + SECRET

    def listed(match: re.Match[str]) -> str:
        """The same for a name and a value that are both named."""
        nonlocal total
        if not is_secret_name(match[2]) or not _can_be_value(match[2], match[4]):
            return match[0]
        total += 1
        return match[0][: -len(match[4])] + SECRET

    def below(match: re.Match[str]) -> str:
        """The same for a value on the next line: a password, or a word with a digit."""
        nonlocal total
        name, value = match[1], match[3]
        is_word = value.isalpha() and not _PASSWORD.search(name)
        if is_word or not _is_secret(name) or _NO_NAME.fullmatch(name):
            return match[0]
        if not _can_be_value(name, value):
            return match[0]
        total += 1
        return match[0][: -len(value)] + SECRET

    for form in (_MARKED, _AFTER):
        text, count = form.subn(SECRET, text)
        total += count
    for form in (_LOGIN, _OPTION, _AUTH, _HASH, _COOKIE):
        text = form.sub(last_group, text)
    for form in (_LISTED, _SET):
        text = form.sub(listed, text)
    if _OPEN_END.search(text):  # few lines end so, and _BELOW is slow
        text = _BELOW.sub(below, text)
    return _NAMED.sub(named, text), total


def _is_secret(name: str) -> bool:
    """Return True if a name in a text, which may have - as those of headers, is a secret's."""
    return is_secret_name(name.replace("-", "_"))


def _can_be_value(name: str, value: str) -> bool:
    """Return True if ``value`` is no number, placeholder or path, and may be a secret ``name``."""
    if _NO_VALUE.fullmatch(value):
        return value.isdecimal() and _PASSWORD.search(name) is not None
    if value.isupper() and is_secret_name(value):  # `HF_TOKEN: 'HF_TOKEN' is missing`
        return False
    if name.lower() == "key":  # of a mapping, unless it looks like one of a service
        return _RANDOM.fullmatch(value) is not None
    return len(value) >= _LEAST or _PASSWORD.search(name) is not None
