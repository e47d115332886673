"""Chromium with the dashboard in it."""

import contextlib
import pathlib
import shutil
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains

PATIENCE = 30
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --enable-precise-memory-info --hide-scrollbars"
).split()


class Browser:
    """A window. `go` loads a page; `js` runs a script in it."""

    def __init__(self, directory, axe):
        self.profile = tempfile.mkdtemp(prefix="profile-", dir=directory)
        self.axe = pathlib.Path(axe).read_text()
        options = Options()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"--user-data-dir={self.profile}"):
            options.add_argument(flag)
        self.driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.driver.set_script_timeout(PATIENCE * 3)

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.profile, ignore_errors=True)

    def look(self, width=1280, height=900, dark=False):
        """Sets the window's size and the colours that its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def go(self, admin):
        self.driver.get(f"http://127.0.0.1:{admin}/")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, what, script, *arguments):
        """Waits until a script returns something true, and returns that."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := self.js(script, *arguments):
                return found
            time.sleep(0.05)
        raise AssertionError(f"not after {PATIENCE} s: {what}; the page says {self.js('return document.getElementById(`main`).innerText')[:1500]!r}")

    def press(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def heap(self):
        """What scripts keep, in bytes, without garbage."""
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        return self.driver.execute_cdp_cmd("Runtime.getHeapUsage", {})["usedSize"]

    def findings(self):
        """What axe finds: rule, impact and the first place."""
        if not self.js("return !!window.axe"):
            self.js(self.axe)
        script = "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then(r => done(r.violations), e => done([{ id: String(e), nodes: [] }]))"
        found = self.driver.execute_async_script(script)
        return [f"{one['id']} ({one.get('impact')}) × {len(one['nodes'])}: {one['nodes'][0]['html'][:160] if one['nodes'] else ''} {one['nodes'][0].get('failureSummary', '')[:300] if one['nodes'] else ''}" for one in found]

    def shot(self, directory, name, whole=False):
        """A picture of the window, or of the whole page."""
        if not directory:
            return
        pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(Exception):
            if whole:
                width, height = self.js("return [innerWidth, document.documentElement.scrollHeight]")
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                time.sleep(0.3)
            self.driver.save_screenshot(str(pathlib.Path(directory) / f"{name}.png"))
