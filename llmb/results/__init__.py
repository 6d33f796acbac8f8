# SPDX-License-Identifier: Apache-2.0
"""Results: what each run measured, and whether it counts."""

from llmb.results.columns import csv_columns, csv_rows, legend, report, table_of
from llmb.results.find import find_logs, last_attempts, log_of, logs_at, run_directory
from llmb.results.recorded import result_of_log, result_of_run
from llmb.results.result import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, UNKNOWN, Configuration, Reference, Result

__all__ = [
    "CANCELLED",
    "FAILED",
    "PENDING",
    "RUNNING",
    "SUCCESS",
    "UNKNOWN",
    "Configuration",
    "Reference",
    "Result",
    "csv_columns",
    "csv_rows",
    "find_logs",
    "last_attempts",
    "legend",
    "log_of",
    "logs_at",
    "report",
    "result_of_log",
    "result_of_run",
    "run_directory",
    "table_of",
]
