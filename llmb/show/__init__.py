# SPDX-License-Identifier: Apache-2.0
"""Results for people: tables, the report as Markdown and HTML, archives."""
