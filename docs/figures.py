# SPDX-License-Identifier: Apache-2.0
"""Writes the published figures of Megatron-Bridge: published-bridge.yaml of each plugin.

Without arguments it reads the tables in docs/nvidia; with --check it only compares, and returns 1
if a file is stale. ``--pages FOLDER`` first renews these tables from NVIDIA's own pages
(performance-summary.md, performance-summary-archive.md and versions1.json in the folder docs of
Megatron-Bridge). Only the numbers are kept, with the pages' digests.
"""

import csv
import hashlib
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmb_testing.generated import write

ROOT = Path(__file__).resolve().parent.parent
TABLES = Path(__file__).with_name("nvidia")
FIGURES, VERSIONS = TABLES / "figures.csv", TABLES / "versions.csv"
PAGES = ("performance-summary.md", "performance-summary-archive.md")
LIST = "versions1.json"
#: Columns by NVIDIA's heads, in the order of the file.
COLUMNS = {
    "Model": "model",
    "System": "system",
    "#-GPUs": "gpus",
    "Precision": "precision",
    "GBS": "gbs",
    "MBS": "mbs",
    "Sequence Length": "seq_length",
    "FSDP": "fsdp",
    "TP": "tp",
    "PP": "pp",
    "CP": "cp",
    "VP": "vp",
    "EP": "ep",
    "Tokens / sec / GPU": "tokens_per_second_per_gpu",
    "Model TFLOP / sec / GPU": "tflops_per_gpu",
}
HEAD = ("release", "task", *COLUMNS.values())
_FOOTNOTE = re.compile(r"\[\^[^\]]*\]")
_PAIR = re.compile(r"(?P<first>[^()]*?)\s*\((?P<second>[^()]*)\)")
#: Precision in NVIDIA's words to dtype. Of release 25.09, which has no column, the first figure of
#: a pair is FP8 with a scale for each tensor, the second on Blackwell is MXFP8.
_DTYPES = {
    "BF16": "bf16",
    "FP8": "fp8_cs",
    "FP8-CS": "fp8_cs",
    "MXFP8": "fp8_mx",
    "FP8-MX": "fp8_mx",
    "NVFP4": "nvfp4",
}

Line = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of NVIDIA's tables that a plugin trains."""

    plugin: str
    size: str
    layers: int


MODELS = {
    "LLAMA3_8B": Model(plugin="llama31", size="8b", layers=32),
    "LLAMA3_70B": Model(plugin="llama31", size="70b", layers=80),
    "LLAMA3.1_405B": Model(plugin="llama31", size="405b", layers=126),
    "Qwen3_30B_a3B": Model(plugin="qwen3", size="30b-a3b", layers=48),
    "Qwen3_235B_a22B": Model(plugin="qwen3", size="235b-a22b", layers=94),
    "DeepSeekV3": Model(plugin="deepseek", size="v3", layers=61),
    # 25.09: its TFLOPS are those of the model with multi-token prediction, as in NVIDIA's script.
    "DeepSeekV3 (dropless)": Model(plugin="deepseek", size="v3", layers=61),
    "DeepSeekV3 (w/ MTP)": Model(plugin="deepseek", size="v3", layers=61),
    "GPT OSS 120B": Model(plugin="gpt_oss", size="120b", layers=36),
    "Kimi_K2": Model(plugin="kimi", size="k2", layers=61),
    "Nemotron_3_Nano": Model(plugin="nemotron3", size="nano", layers=52),
    "Nemotron_3_5_Lightning": Model(plugin="nemotron3", size="lightning", layers=52),
    "Nemotron_3_Super": Model(plugin="nemotron3", size="super", layers=88),
}


def lines_of(page: str) -> Iterator[Line]:
    """Yield the table lines of a page as printed, with release, task, and model or system."""
    context: dict[str, str] = {}
    heads: list[str] = []
    for text in page.splitlines():
        if match := re.fullmatch(r"## (\d\d\.\d\d(?:\.\d\d)?) NeMo Container", text.strip()):
            context = {"release": match[1]}
        elif match := re.fullmatch(r"### (.*) Performance", text.strip()):
            context |= {"task": match[1].lower().replace("-", "")}
        elif match := re.fullmatch(r"#### (Model|System): (.*)", text.strip()):
            context |= {"model": "", "system": ""} | {match[1].lower(): match[2].strip()}
        elif text.startswith("|") and "release" in context:
            cells = [_FOOTNOTE.sub("", cell).strip() for cell in text.strip().strip("|").split("|")]
            if "#-GPUs" in cells:
                heads = cells
            elif set("".join(cells)) != {"-"}:
                named = {
                    COLUMNS[head]: cell
                    for head, cell in zip(heads, cells, strict=True)
                    if head in COLUMNS
                }
                yield {name: {**context, **named}.get(name, "") for name in HEAD}


def renew(folder: Path) -> None:
    """Write the tables in docs/nvidia from NVIDIA's pages in ``folder``."""
    texts = {name: (folder / name).read_bytes() for name in (*PAGES, LIST)}
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    figures = [line for name in PAGES for line in lines_of(texts[name].decode())]
    versions = [
        dict(zip(("bridge", "release"), re.findall(r"\d+(?:\.\d+)+", entry["name"]), strict=True))
        for entry in json.loads(texts[LIST])
        if "name" in entry
    ]
    TABLES.mkdir(exist_ok=True)
    FIGURES.write_text(_table(HEAD, figures, {name: digests[name] for name in PAGES}), "utf-8")
    VERSIONS.write_text(_table(("bridge", "release"), versions, {LIST: digests[LIST]}), "utf-8")


def _table(head: Sequence[str], lines: Iterable[Line], pages: Mapping[str, str]) -> str:
    """Return a CSV, after a comment with the digest of each page that it was read from."""
    text = io.StringIO()
    for name, digest in pages.items():
        text.write(f"# Megatron-Bridge docs/{name} sha256:{digest}\n")
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def read_table(path: Path) -> list[Line]:
    """Return the lines of one of the tables in docs/nvidia."""
    rows = (row for row in path.read_text("utf-8").splitlines() if not row.startswith("#"))
    return list(csv.DictReader(rows))


def split(line: Line) -> Iterator[Line]:
    """Yield the one or two configurations that a printed line is about, with ``dtype``.

    A pair ``a (b)`` in any cell is two configurations, unless its throughput is only one.
    """
    halves = [{}, {}]  # type: list[dict[str, str]]
    for name, cell in line.items():
        match = _PAIR.fullmatch(cell) if name != "model" else None
        for number, part in enumerate(("first", "second")):
            halves[number][name] = cell if match is None else match[part]
    is_pair = "(" in line["tokens_per_second_per_gpu"]
    for number, half in enumerate(halves[: 1 + is_pair]):
        is_second = bool(number) and not line["precision"]
        precision = half["precision"] or ("MXFP8" if is_second else "FP8")
        yield {**half, "dtype": _DTYPES[precision]}


def entries(plugin: str) -> Iterator[str]:
    """Yield the tables of a plugin's published-bridge.yaml, the newest release first."""
    for line in read_table(FIGURES):
        model = MODELS.get(line["model"])
        if model is None or model.plugin != plugin or line["task"] != "pretraining":
            continue
        for half in split(line):
            gpu, gpus = half["system"].removeprefix("DGX-").lower(), half["gpus"]
            source = f"Megatron-Bridge, performance summary of {half['release']}"
            tflops = half["tflops_per_gpu"]
            yield (
                f'  - {{release: "{half["release"]}", framework: bridge, source: "{source}",'
                f" window: 35-44,\n     steps: 50, size: {model.size}, dtype: {half['dtype']},"
                f" gpu: {gpu}, gbs: {half['gbs']}, seq_length: {half['seq_length']},"
                f" layers: {model.layers},\n     metric: tokens_per_second_per_gpu, values:"
                f" {{{gpus}: {half['tokens_per_second_per_gpu']}}},"
                f" also: {{tflops_per_gpu: {{{gpus}: {tflops}}}}}}}\n"
            )


COMMENT = """\
# SPDX-License-Identifier: Apache-2.0
# Published figures of Megatron-Bridge: the tables "Performance Summary" of its documentation, by
# release of the image. Written by `python docs/figures.py` from docs/nvidia/figures.csv.
#   values: tokens per second of one GPU, by GPU count. also: other metrics of the same run;
#   tflops_per_gpu is what the framework prints. gbs: the global batch. All pretraining.
#   dtype: fp8_cs and fp8_mx are the columns FP8 (current scaling) and MXFP8; in 25.09 and 25.11
#   the figures in parentheses are fp8_mx.
#   window: NVIDIA does not state the window of these tables. 35-44 of 50 steps is the one that
#   NVIDIA's exemplar-performance measures. Figures since 26.04.01 look rounded, but for 26.06.
#   The layout of a figure is not always that of the row that NVIDIA ships
#   (docs/megatron-bridge.md).
tables:
"""


def files() -> dict[Path, str]:
    """Return the text of each plugin's file."""
    plugins = dict.fromkeys(model.plugin for model in MODELS.values())
    return {
        ROOT / "plugins" / name / f"llmb_{name}" / "published-bridge.yaml": COMMENT
        + "".join(entries(name))
        for name in plugins
    }


def main(arguments: Sequence[str]) -> int:
    """Write the files, or with --check compare them."""
    if arguments[:1] == ["--pages"]:
        renew(Path(arguments[1]))
    return write(files(), "figures", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
