# SPDX-License-Identifier: Apache-2.0
"""A section of a report by a plugin, as data."""

from llmb.core.checked import check_types
from llmb.core.values import dataclass
from llmb.errors import KeyFaultError

Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A heading, paragraphs and a table. llmb shows them in Markdown and HTML."""

    title: str
    #: Plain text. An empty line separates paragraphs.
    text: str = ""
    #: The headings of a table.
    columns: tuple[str, ...] = ()
    #: Each with a value for each column; None is an empty cell.
    rows: tuple[tuple[Cell, ...], ...] = ()
    #: The page that it is on: of the report itself, or of ``llmb-run report --page NAME``.
    page: str = ""
    #: Whether it comes before everything else on its page, as a certificate does.
    first: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        if not self.title.strip():
            raise KeyFaultError("is empty", "title", hint="write a heading", value=self.title)
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                message = f"has {len(row)} cells, and the table {len(self.columns)} columns"
                hint = "give each row a value for each column, None for an empty cell"
                raise KeyFaultError(message, "rows", number, hint=hint, value=row)
