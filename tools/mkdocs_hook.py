"""What the pages need besides Markdown to become a site; mkdocs calls it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from mkdocs.exceptions import PluginError

_FENCE = re.compile(r"^```json \w+$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FOREIGN = re.compile(r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')


def on_page_markdown(markdown: str, *, page: Any, files: Any, **_: Any) -> str:
    """Fits a page that is written for a forge to the site.

    There, readers see the repository around the pages; here they do not, so a link out of the folder keeps
    its words only. The second word of a fence says for tests what an example is.
    """
    folder = PurePosixPath(page.file.src_uri).parent

    def linked(link: re.Match[str]) -> str:
        text, path, _ = link.groups()
        inside = "://" in path or files.get_file_from_path(normpath(folder / path))
        return link[0] if inside else text

    return _LINK.sub(linked, _FENCE.sub("```json", markdown))


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Sees to it that readers ask no other server for anything."""
    if found := _FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output
