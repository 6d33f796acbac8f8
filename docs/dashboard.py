# SPDX-License-Identifier: Apache-2.0
"""Writes the Grafana dashboard of llmb-export with Grafana's own builders; --check: exit code 1 if
it is stale.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from llmb_testing.generated import write

FILE = Path(__file__).resolve().parent.parent / "plugins/export/llmb_export/dashboard.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
CHOSEN = 'workload=~"$workload",gpu_type=~"$gpu_type"'
EXPERIMENT = "{{experiment}} {{variant}}"
WIDTH, HEIGHT = 12, 8  # of 24 columns; of rows


def query(expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expression).legend_format(legend)


def over_time(title: str, expression: str, unit: str, legend: str = EXPERIMENT) -> timeseries.Panel:
    """A panel with a line for each configuration."""
    panel = timeseries.Panel().title(title).datasource(SOURCE).unit(unit)
    return panel.with_target(query(expression, legend)).span(WIDTH).height(HEIGHT)


def count(title: str, expression: str, unit: str = "short") -> stat.Panel:
    """A panel with one number."""
    panel = stat.Panel().title(title).datasource(SOURCE).unit(unit)
    return panel.with_target(query(expression, "")).span(6).height(4)


def results() -> table.Panel:
    """The newest verdict of each configuration."""
    verdicts = f"max by (experiment, variant, verdict) (llmb_verdict{{{CHOSEN}}} == 1)"
    shown = query(verdicts, "").format(PromQueryFormat.TABLE).instant()
    panel = table.Panel().title("Verdicts").datasource(SOURCE).with_target(shown)
    return panel.span(24).height(HEIGHT)


def variable(name: str) -> dashboard.QueryVariable:
    """A choice among the values of a label."""
    values = dashboard.QueryVariable(name).label(name.replace("_", " ")).datasource(SOURCE)
    values = values.query(f"label_values(llmb_runs, {name})").multi(True).include_all(True)
    return values.all_value(".*").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)


def build() -> str:
    """The dashboard as JSON."""
    board = (
        dashboard.Dashboard("LLM training benchmarks (llmb)")
        .uid("llmb-results")
        .description("What llmb measured, from the file that `llmb-run export openmetrics` writes.")
        .tags(["llmb", "benchmark", "gpu"])
        .time("now-30d", "now")
        .refresh("5m")
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
        .with_variable(variable("workload"))
        .with_variable(variable("gpu_type"))
    )
    bad = f'llmb_verdict{{{CHOSEN},verdict=~"FAIL|INVALID"}}'
    age = f"time() - max(llmb_run_timestamp_seconds{{{CHOSEN}}})"
    failed = f'llmb_runs{{{CHOSEN},status="Failed"}}'
    node = f"{{{{node}}}} {EXPERIMENT}"
    chosen = f"{{{CHOSEN}}}"
    for panel in (
        count("Experiments with FAIL or INVALID", f"sum({bad}) or vector(0)"),
        count("Failed runs", f"sum({failed}) or vector(0)"),
        count("Lowest ratio", f"min(llmb_ratio{chosen})", "percentunit"),
        count("Since the newest run", age, "s"),
        results(),
        over_time("Ratio to the reference", f"llmb_ratio{chosen}", "percentunit"),
        over_time("Step time", f"llmb_step_time_seconds{chosen}", "s"),
        over_time("Tokens/s per GPU", f"llmb_tokens_per_second_per_gpu{chosen}", "short"),
        over_time("TFLOPS per GPU", f"llmb_model_tflops_per_gpu{chosen}", "short"),
        over_time("MFU", f"llmb_mfu_ratio{chosen}", "percentunit"),
        over_time("Bandwidth", f"llmb_busbw_bytes_per_second{chosen}", "Bps"),
        over_time("GPU power by node", f"llmb_node_power_mean_watts{chosen}", "watt", node),
        over_time("SM clock by node", f"llmb_node_sm_clock_median_hertz{chosen}", "hertz", node),
    ):
        board = board.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the dashboard; with --check, only compare, and return 1 if it is stale."""
    return write({FILE: build()}, "dashboard", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
