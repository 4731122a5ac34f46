"""What a page says to a reader who cannot see it: tables by caption, pairs of facts, and what it would load."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_INLINE = ("a", "span")
"""They are part of the text that they stand in."""
_VOID = ("meta", "link", "br", "img", "input", "hr")


@dataclass
class Page(HTMLParser):
    """`tables` have a list of cells a row, the header first. `loads` are addresses that a browser would ask for."""

    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    titles: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _text: str = ""
    _rows: list[list[str]] = field(default_factory=list)
    _term: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.loads += [each for each in named if not each.startswith("#")]
        if tag not in _VOID:
            self._open.append(tag)
        if tag in _INLINE:
            return
        self._text = ""
        if tag == "tr":
            self._rows.append([])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes what is not open"
        if tag in _INLINE:
            return
        text = self._text
        if tag == "caption":
            self._rows = []
            self.tables[text] = self._rows
        elif tag in ("td", "th"):
            self._rows[-1].append(text)
        elif tag == "dt":
            self._term = text
        elif tag == "dd":
            self.facts[self._term] = text
        elif tag == "title" and "svg" in self._open:
            self.titles.append(text)
        self._text = ""

    def rows(self, caption: str) -> list[dict[str, str]]:
        """The rows of the table whose caption begins so, by their columns."""
        (found,) = [rows for text, rows in self.tables.items() if text.startswith(caption)]
        header, *rows = found
        return [dict(zip(header, row, strict=True)) for row in rows]


def read_page(text: str) -> Page:
    """The page, which must be whole and load nothing."""
    page = Page()
    page.feed(text)
    page.close()
    assert page._open == []
    assert page.loads == ["data:,"]
    assert "script" not in page.tags
    assert "url(" not in text
    return page
