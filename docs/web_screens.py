"""Pictures of the pages, from the journal of a simulation: `python docs/web_screens.py`.

It needs what `make web-tests` installs, and Chromium. It takes about a minute.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "screens"
SCENARIO = "examples/simulations/three-teams.yaml"
FEWER = "cluster.nodes.0.count=20"
"""A smaller cluster, in which gangs wait."""
PART = 667
"""The moment, of a thousand: gangs wait in all queues."""
COLORS = 128
VIEWS = {
    "cluster": "cluster",
    "queues": "queues",
    "queue": "queue?name=vision",
    "gangs": "gangs",
    "timeline": "timeline",
    "what-if": "what-if?count=4&node={node}",
    "node": "node?name={node}",
    "gang": "gang?name={gang}",
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Simulate a day, and serve its journal; yield the address."""
    gangsched = (sys.executable, "-u", "-m", "gangsched")
    day = ("--seeds", "1", "--set", "horizon=1d", "--set", FEWER, "--journal", "--out", str(folder))
    subprocess.run((*gangsched, "simulate", SCENARIO, *day), cwd=ROOT, check=True)
    journal = folder / "three-teams" / "seed-0" / "journal.jsonl"
    command = (*gangsched, "web", str(journal), "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        address = re.search(r"http://[^\s/]+", program.stdout.readline())
        try:
            assert address is not None, "gangsched web prints its address"
            yield address[0]
        finally:
            program.terminate()


def draw(page: Page, url: str) -> None:
    """Draw each view of one moment."""
    page.goto(f"{url}/moment?view=gangs&part={PART}")
    here = page.url.rpartition("/")[0]
    page.goto(f"{here}/gangs?state=Pending")
    gang = page.locator("tbody th a").first.inner_text()
    page.goto(f"{here}/cluster")
    node = page.locator("a[href^='node?']").first.inner_text().split()[0]
    for name, view in VIEWS.items():
        page.goto(f"{here}/{view.format(node=node, gang=gang)}")
        path = OUT / f"web-{name}.png"
        page.screenshot(path=path)
        with Image.open(path) as drawn:
            drawn.convert("RGB").quantize(COLORS).save(path, optimize=True)
        sys.stdout.write(f"{path.relative_to(ROOT)} {path.stat().st_size}\n")


def main() -> None:
    """Draw all views."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with TemporaryDirectory() as folder, served(Path(folder)) as url, sync_playwright() as run:
        browser = run.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        draw(browser.new_page(viewport={"width": 1280, "height": 860}), url)
        browser.close()


if __name__ == "__main__":
    main()
