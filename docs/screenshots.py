"""Take the pictures of docs/viewer.md: the main views of `agent-gym view`, in a headless Chromium.

    python docs/screenshots.py RUN OTHER_RUN EPISODES_WITH_REWRITTEN_CONTEXTS.jsonl

Needs selenium, Chromium and its driver. Pictures go to docs/images (--out), each below 150 kB.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

from agent_gym.report.serve import ViewServer
from agent_gym.report.store import open_source

HERE = Path(__file__).parent
LARGEST = 150_000
HOVER = "const all = document.querySelectorAll('.turn.chosen .t'); const one = all[Math.min(5, all.length - 1)]; one && one.focus();"
SORT = "document.querySelector('[data-sort=reward]').click()"


def chromium(profile: str) -> webdriver.Chrome:
    """Start a browser without a window and without a network."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--no-sandbox",
        "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=127.0.0.1", f"--user-data-dir={profile}",
    ):  # fmt: skip
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or "chromedriver"))


def take(
    browser: webdriver.Chrome, address: str, to: Path, *, width: int = 1100, height: int = 860, dark: bool = False, script: str = ""
) -> None:
    """Take one picture."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get("about:blank")
    browser.get(address)
    for _ in range(100):
        time.sleep(0.3)
        if "reading ..." not in str(browser.execute_script("return document.body.innerText")):
            break
    time.sleep(0.7)
    if script:
        browser.execute_script(script)
        time.sleep(0.5)
    to.parent.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(to))
    size = to.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{to} has {size} bytes, above {LARGEST}; make its window smaller")
    sys.stdout.write(f"{to} {size}\n")


def main() -> None:
    """Serve the runs and take the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("run")
    parser.add_argument("other")
    parser.add_argument("rewritten")
    parser.add_argument("--episode", default="train.jsonl/0/1", help="FILE/NUMBER/STEP of the first run that is shown")
    parser.add_argument("--rewritten-step", default="0/0/1", help="FILE/EPISODE/STEP of the third, whose context was rewritten")
    parser.add_argument("--out", type=Path, default=HERE / "images")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as profile,
        ViewServer([open_source(args.run)]) as one,
        ViewServer([open_source(args.run), open_source(args.other)]) as two,
        ViewServer([open_source(args.rewritten)]) as third,
    ):
        name, number, step = args.episode.split("/")
        file = [item.path.name for item in open_source(args.run).files()].index(name)
        episode = f"#/episode/{file}/{number}/{step}"
        browser = chromium(profile)
        try:
            take(browser, one.url, args.out / "viewer-overview.png")
            take(browser, f"{one.url}#/episodes", args.out / "viewer-episodes.png", script=SORT)
            take(browser, one.url + episode, args.out / "viewer-episode.png", height=980, script=HOVER)
            take(browser, one.url + episode, args.out / "viewer-dark.png", height=980, dark=True, script=HOVER)
            take(browser, one.url + episode, args.out / "viewer-telephone.png", width=390, height=844)
            take(browser, f"{third.url}#/episode/{args.rewritten_step}", args.out / "viewer-diff.png", width=960, height=880)
            take(browser, two.url, args.out / "viewer-two-runs.png", script="window.scrollTo(0, 480)")
            take(browser, f"{two.url}#/compare", args.out / "viewer-side-by-side.png", height=980)
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
