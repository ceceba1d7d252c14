"""Take the picture of the report that the README shows.

`python -m docs.screenshot DATA/reports/report.html`, with the report of the A100 log (`baton analyze`). It needs
Debian's Chromium (`make system`). The picture has a palette of 256 colours, which keeps it under 300 kB.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser.conftest import headless

PICTURE = Path(__file__).parent / "images" / "report.png"
WIDTH, HEIGHT = 1280, 1660  # pixels of the window

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as profile, headless(Path(profile)) as browser:
        browser.set_window_size(WIDTH, HEIGHT)
        browser.get(Path(sys.argv[1]).resolve().as_uri())
        browser.execute_script("document.documentElement.style.overflow = 'hidden'")  # no scroll bar
        shot = Image.open(io.BytesIO(browser.get_screenshot_as_png()))
        shot.convert("RGB").quantize(256).save(PICTURE, optimize=True)
