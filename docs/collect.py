"""Writes the tree that the site is built from (`make docs`): `python docs/collect.py build/docs`.

Pages of docs/ keep their paths. The tree has these pages with the links of the site, the pages
outside docs/, the reference of docs/reference.py, lists of the decisions and of the pages about
jobs, and a page for each source file that a page links to. So the site can be read without a
network. This module does not depend on the generator of the site.
"""

import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import reference

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent

ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages outside docs/, and their paths in the site."""

LISTS = {
    "docs/decisions": (
        "Decisions",
        "Each record has the context, the decision with its alternatives, and the consequences.",
    ),
    "docs/jobs": (
        "Jobs",
        (
            "Each job is a gang without further settings. A page lists what works, and the "
            "differences from the original operator. Other pods become gangs by "
            "[their groups](groups.md)."
        ),
    ),
}
"""Folders that get a page with a list of their pages: its title and its first paragraph."""

COPIED = (".css", ".js", ".png", ".svg")
"""Files of docs/ that pages show."""

LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
LANGUAGES = {".json": "json", ".py": "python", ".sh": "sh", ".toml": "toml", ".yaml": "yaml"}


class Tree:
    """The pages of the repository, and the tree of the site."""

    def __init__(self) -> None:
        below = sorted(FOLDER.rglob("*.md"))
        self.pages = {str(path.relative_to(ROOT)): str(path.relative_to(FOLDER)) for path in below}
        self.pages |= ROOT_PAGES
        self.texts = {page: (ROOT / page).read_text() for page in self.pages}

    def files(self) -> dict[str, str]:
        """Return the text of each page of the site by its path there.

        Raises:
            FileNotFoundError: a page links to a file that is not in the repository.

        """
        files = {at: self._with_links(page, at) for page, at in self.pages.items()}
        for folder in LISTS:
            files[f"{folder.removeprefix('docs/')}/index.md"] = self._list(folder)
        for page, text in self.texts.items():
            for target in _targets(page, text):
                if self.place(target, page).startswith("files/"):
                    files[self.place(target, page)] = _source(target)
        return files | reference.pages()

    def place(self, target: str, page: str) -> str:
        """Return the path in the site of a file or folder to which a page links."""
        if target in self.pages:
            return self.pages[target]
        if target in LISTS:
            return f"{target.removeprefix('docs/')}/index.md"
        if not (ROOT / target).exists():
            raise FileNotFoundError(f"{page} links to {target}, which does not exist")
        if target.endswith(COPIED):
            return target.removeprefix("docs/")
        return f"files/{target}{'/index' if (ROOT / target).is_dir() else ''}.md"

    def _with_links(self, page: str, at: str) -> str:
        """Return the text of a page with the links of the site."""

        def link(match: re.Match[str]) -> str:
            target = self.place(_target(page, match[1]), page)
            return posixpath.relpath(target, posixpath.dirname(at)) + (match[2] or "")

        text = LINK.sub(link, self.texts[page])
        if at.startswith("decisions/"):  # the navigation has the list, and not each record
            text += "\n[All decisions](index.md)\n"
        return text

    def _list(self, folder: str) -> str:
        """Return the page that lists the pages of a folder by their titles."""
        title, text_before = LISTS[folder]
        lines = []
        for page, text in self.texts.items():
            if posixpath.dirname(page) == folder:
                head = next(line for line in text.splitlines() if line.startswith("# "))
                lines.append(f"- [{head.removeprefix('# ')}]({posixpath.basename(page)})\n")
        return f"# {title}\n\n{text_before}\n\n{''.join(lines)}"


def _target(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _targets(page: str, text: str) -> Iterator[str]:
    for link in LINK.finditer(text):
        yield _target(page, link[1])


def _source(target: str) -> str:
    """Return the page that shows a file or a folder of the repository."""
    path = ROOT / target
    if path.is_dir():
        lines = "".join(f"- `{target}/{entry.name}`\n" for entry in sorted(path.iterdir()))
        return f"# {target}\n\n{lines}"
    language = LANGUAGES.get(path.suffix, "text")
    return f"# {target}\n\n``````{language}\n{path.read_text()}\n``````\n"


def main(folder: Path) -> None:
    """Write the tree into a folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    for at, text in Tree().files().items():
        (folder / at).parent.mkdir(parents=True, exist_ok=True)
        (folder / at).write_text(text)
    for path in FOLDER.rglob("*"):
        if path.suffix in COPIED:
            copy = folder / path.relative_to(FOLDER)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
