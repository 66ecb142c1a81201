"""Hooks of MkDocs for the site: pages from outside docs/, generated pages, links, and no network.

`mkdocs build --strict` fails for each warning, so a warning here is an error of a page.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import command_line
import notebook_pages
import python_names
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from page_text import anchor, rewritten, with_whole_options, with_wide_lists

from utvm_deploy.cli.doc_pages import PROJECT_FILES
from utvm_deploy.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "docs" / "tutorials"
#: Files beside this one that the pages load, in the folder assets of the site.
ASSETS = ("iframe-worker.js", "site.css")
#: The item of the navigation that gets a page for each verb.
COMMAND_LINE = "Command line"
#: Attributes by which a page loads something. Links that a reader may follow are no loading.
_LOADED = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:)?//[^>]*>"
)
_IMPORTED = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"']*")

log = logging.getLogger("mkdocs.hooks.utvm")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the pages of the verbs in the navigation; make anchors as the pages' links have them."""
    config.mdx_configs["toc"]["slugify"] = anchor
    (reference,) = (item["Reference"] for item in config.nav or () if "Reference" in item)
    (verbs,) = (item for item in reference if isinstance(item, dict) and COMMAND_LINE in item)
    verbs[COMMAND_LINE] = [{verb: f"reference/verbs/{verb}.md"} for verb in VERBS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the project and those that are made from the code."""
    for name in ASSETS:
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"assets/{name}", content=text))
    for name in PROJECT_FILES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, _place(name), content=text))
    for verb, text in command_line.pages().items():
        files.append(File.generated(config, f"reference/verbs/{verb}.md", content=text))
    for name, text in notebook_pages.pages(NOTEBOOKS).items():
        files.append(File.generated(config, f"tutorials/{name}.md", content=text))
    for name, text in python_names.pages().items():
        files.append(File.generated(config, f"reference/python/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files of the repository into links to pages."""
    places = {_source(file.src_uri): file.src_uri for file in files if file.src_uri != "404.html"}
    place = page.file.src_uri
    # A link to a notebook leads to its page, and from there to the file.
    for name in notebook_pages.pages(NOTEBOOKS):
        if place != f"tutorials/{name}.md":
            places[f"docs/tutorials/{name}.ipynb"] = f"tutorials/{name}.md"
    text = rewritten(markdown, _source(place), place, places, ROOT, log.warning)
    return with_wide_lists(text)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep options in text on one line."""
    return with_whole_options(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn of each page that would load something from elsewhere."""
    for page in Path(config.site_dir).rglob("*"):
        if page.suffix not in (".html", ".css"):
            continue
        text = page.read_text(encoding="utf-8")
        for found in (*_LOADED.finditer(text), *_IMPORTED.finditer(text)):
            if 'rel="canonical"' not in found[0]:
                log.warning("%s loads something from elsewhere: %s", page.name, found[0])


def _place(name: str) -> str:
    """Where the site has a page of the project."""
    return f"project/{name.lower()}"


def _source(place: str) -> str:
    """The file in the repository that a place of the site shows."""
    for name in PROJECT_FILES:
        if place == _place(name):
            return name
    return f"docs/{place}"
