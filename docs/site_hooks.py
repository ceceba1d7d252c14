"""Hooks of mkdocs: add the repository's pages outside docs/ to the site, and make links between pages lead there.

On GitHub, pages link to each other and to source files by relative paths. The site holds pages only: a link to another
file becomes plain text. A folder in the navigation (`decisions/`) stands for all of its pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md", "examples/README.md",
           "data/sample/README.md")  # fmt: skip
PREFIX = "repository/"  # of their addresses on the site
SHIM = "https://unpkg.com/iframe-worker/shim"  # which the plugin `offline` loads
_EXTERNAL = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"' >]+)""")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder of the navigation by its pages, the README first."""
    config.nav = [_with_folders(item) for item in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/."""
    for path in OUTSIDE:
        files.append(File.generated(config, PREFIX + path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page into links of the site."""
    here = page.file.src_uri
    in_repository = here.removeprefix(PREFIX) if here.startswith(PREFIX) else f"docs/{here}"
    parts = _QUOTED.split(markdown)
    for place in range(0, len(parts), 2):  # odd ones are quoted
        parts[place] = _LINK.sub(lambda link: _on_site(link, in_repository, here, files), parts[place])
    return "".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Take the search's shim from the site."""
    return _from_here(output, page.url, page.file.src_uri)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same for pages without Markdown, such as 404.html."""
    return _from_here(output_content, template_name, template_name)


def _from_here(output: str, url: str, name: str) -> str:
    """The page with the shim's address on the site. Raises PluginError where it loads anything else from elsewhere."""
    output = output.replace(SHIM, get_relative_url("assets/iframe-worker.js", url))
    if external := _EXTERNAL.search(output):
        raise PluginError(f"{name} loads {external[1]}: put the file under docs/assets")
    return output


def _with_folders(item: Any) -> Any:
    if isinstance(item, dict):
        return {title: _with_folders(below) for title, below in item.items()}
    if isinstance(item, list):
        return [_with_folders(below) for below in item]
    if not item.endswith("/"):
        return item
    names = sorted(path.name for path in (ROOT / "docs" / item).glob("*.md"))
    return [item + name for name in sorted(names, key=lambda name: name != "README.md")]


def _on_site(link: re.Match[str], in_repository: str, here: str, files: Files) -> str:
    """The link with its target's address on the site; its text alone where the site does not hold the target."""
    mark, text, target = link.groups()
    path, hash_sign, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", target):
        return link[0]
    there = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), path))
    if (ROOT / there).is_dir():
        there += "/README.md"
    source = there.removeprefix("docs/") if there.startswith("docs/") else PREFIX + there
    if files.get_file_from_path(source) is None:
        if (ROOT / there).exists():
            return text
        return link[0]  # leads nowhere: mkdocs reports it
    return f"{mark}[{text}]({posixpath.relpath(source, posixpath.dirname(here) or '.')}{hash_sign}{anchor})"
