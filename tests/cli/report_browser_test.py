# SPDX-License-Identifier: Apache-2.0
"""Tests the page of yard report in Chromium: what it shows, by mouse and keyboard, wide, on a phone,
dark and printed.

Talks to the browser over its debugging pipe. Skipped if there is no Chromium.
"""
import base64
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import report_trace
from command import Yard, main

CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


class Browser:
    """A browser with one page. It reads and writes DevTools messages, each ended by a zero byte."""

    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.from_, to_write = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        command = (f'exec "$0" --headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage '
                   f'--remote-debugging-pipe --user-data-dir="$1" about:blank 3<&{to_read} 4>&{to_write}')
        self.process = subprocess.Popen(["bash", "-c", command, CHROMIUM, folder], pass_fds=(to_read, to_write),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.last, self.buffer, self.session, self.events = 0, b"", None, []
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.do(f"{domain}.enable")

    def do(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.last:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def read(self):
        while b"\0" not in self.buffer:
            piece = os.read(self.from_, 1 << 16)
            assert piece, "the browser has ended"
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def open(self, url):
        self.events = [e for e in self.events if e.get("method") != "Page.loadEventFired"]
        self.do("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.read())

    def js(self, expression):
        result = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def key(self, key, code):
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def click(self, selector):
        x, y = self.js(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView("
                       "{block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect();"
                       "return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def width(self, pixels, height=900):
        self.do("Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=pixels < 500)

    def media(self, media="", scheme="light"):
        self.do("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self):
        """Returns rows of pixels of the visible part of the page."""
        return pixels(base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to), os.close(self.from_)


def pixels(png):
    """Returns the rows of an 8-bit PNG as lists of (red, green, blue)."""
    at, packed, size = 8, b"", 0
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
            size = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, rows, before = zlib.decompress(packed), [], bytes(width * size)
    for y in range(height):
        start = y * (width * size + 1)
        kind, line = raw[start], bytearray(raw[start + 1:start + 1 + width * size])
        for i in range(len(line)):
            left, up = line[i - size] if i >= size else 0, before[i]
            corner = before[i - size] if i >= size else 0
            if kind == 4:
                guess = left + up - corner
                guess = min((left, up, corner), key=lambda v: abs(guess - v))
            else:
                guess = (0, left, up, (left + up) // 2)[kind]
            line[i] = (line[i] + guess) & 255
        before = bytes(line)
        rows.append([tuple(line[i:i + 3]) for i in range(0, len(line), size)])
    return rows


def count(picture, colour):
    """Counts the pixels of nearly this colour."""
    return sum(max(abs(a - b) for a, b in zip(p, colour)) <= 6 for row in picture for p in row)


ONEDNN, SIMD = (0x00, 0x72, 0xb2), (0xd5, 0x5e, 0x00)  # --k0 and --k1 of the light scheme


class InChromium(Yard):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        folder = pathlib.Path(cls.folder.name)
        report_trace.write(folder / "t.json")
        subprocess.run([os.environ["YARD"], "report", "--trace", "t.json", "-o", "r.html"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        cls.browser = Browser(str(folder / "profile"))
        cls.url = (folder / "r.html").as_uri()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def setUp(self):
        b = self.browser
        b.events.clear()
        b.media()
        b.width(1200)
        b.open("about:blank")
        b.events.clear()
        b.open(self.url)

    def cells(self, table, column):
        return self.browser.js(f"[...document.querySelectorAll('#{table} tbody tr')].map(r => r.cells[{column}].textContent)")

    def test_shows_everything_without_errors_or_network(self):
        b = self.browser
        self.assertEqual(b.js("document.title"), "t.json")  # the hostile name does not change the title
        self.assertEqual(b.js("document.querySelectorAll('img').length"), 0)
        tiles = b.js("Object.fromEntries([...document.querySelectorAll('#tiles div')].map(d => "
                     "[d.querySelector('dt').textContent, d.querySelector('dd').textContent]))")
        self.assertEqual(tiles["Calls"], "1,601")
        self.assertEqual(tiles["Fallbacks"], "9")
        self.assertEqual(self.cells("kernels", 0)[:3], ["linear", "linear", "softmax"])
        self.assertEqual(self.cells("kernels", 1)[0], "vendor.onednn")
        self.assertEqual(b.js("document.querySelectorAll('#histograms svg').length"), 4)
        self.assertEqual(b.js("document.querySelectorAll('#timeline circle').length"), 5)
        self.assertGreater(b.js("document.querySelectorAll('#rates rect').length"), 100)
        self.assertEqual(list(zip(self.cells("failed", 1), self.cells("failed", 3), self.cells("failed", 5))),
                         [("vendor.acme", "0", "1"), ("default.simd", "9", "0")])
        self.assertTrue(b.js("document.querySelector('#breakers').hidden"))
        requests = [e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"]
        self.assertEqual(requests, [self.url])
        bad = [e for e in b.events if e.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
        self.assertEqual(bad, [])

    def test_every_chart_has_a_text(self):
        self.assertEqual(self.browser.js(
            "[...document.querySelectorAll('svg')].filter(s => !(s.getAttribute('aria-label') || '').match(/\\d/)).length"), 0)
        self.assertEqual(self.browser.js(
            "[...document.querySelectorAll('table')].filter(t => !t.caption || !t.caption.textContent).length"), 0)

    def test_screenshot_shows_the_shares(self):
        picture = self.browser.picture()
        onednn, simd = count(picture, ONEDNN), count(picture, SIMD)
        # The bar of linear is divided by time in the ratio 43 to about 4.5.
        self.assertGreater(onednn, 5000)
        self.assertGreater(simd, 500)
        self.assertGreater(onednn, 4 * simd)
        self.assertGreater(count(picture, (255, 255, 255)), 100000)

    def test_tables_sort_by_mouse_and_keyboard(self):
        b = self.browser
        before = self.cells("kernels", 4)
        b.click("#kernels thead th:nth-child(5) button")  # sorts by calls, most first
        by_calls = self.cells("kernels", 4)
        self.assertEqual(by_calls, ["1,000", "500", "100", "1"])
        self.assertEqual(b.js("document.querySelector('#kernels th:nth-child(5)').getAttribute('aria-sort')"), "descending")
        b.key("Enter", 13)  # the button has the focus
        self.assertEqual(self.cells("kernels", 4), by_calls[::-1])
        self.assertEqual(b.js("document.querySelector('#kernels th:nth-child(5)').getAttribute('aria-sort')"), "ascending")
        self.assertEqual(b.js("document.querySelectorAll('#kernels th[aria-sort]').length"), 1)
        self.assertEqual(len(before), 4)

    def test_everything_can_be_reached_by_the_tab_key(self):
        b = self.browser
        seen = []
        for _ in range(120):
            b.key("Tab", 9)
            seen.append(b.js("(e => e.id || e.textContent.slice(0, 30))(document.activeElement)"))
        self.assertEqual(seen[0], "Skip to the figures")
        for name in ("Time", "kernels-filter", "Op", "op", "All classes of all ops", "percentiles-filter", "events-filter"):
            self.assertIn(name, seen)

    def test_filter_and_choice_of_the_op(self):
        b = self.browser
        b.click("#events-filter")
        b.do("Input.insertText", text="ABORTED rollout")
        self.assertEqual(self.cells("events", 2), ["rollout aborted"])
        self.assertEqual(b.js("document.querySelector('[data-for=events] [role=status]').textContent"), "1 of 5 rows")
        self.assertEqual(len(self.cells("matrix", 0)), 2)
        self.assertEqual([c[:5] for c in self.cells("matrix", 2)], ["100 %", "\u2013"])
        b.js("(s => { s.value = 'softmax'; s.dispatchEvent(new Event('change')); })(document.getElementById('op'))")
        self.assertEqual(self.cells("matrix", 0), ["softmax(f32[64,64])@cpu"])
        self.assertIn("100 %", self.cells("matrix", 2)[0])
        self.assertEqual(self.cells("matrix", 3), ["\u20131 failed"])
        b.click("details summary")
        self.assertTrue(b.js("document.querySelector('details').open"))
        self.assertEqual(len(self.cells("classes", 0)), 5)

    def test_fits_a_phone(self):
        b = self.browser
        b.width(390, 800)
        b.open(self.url)
        self.assertLessEqual(b.js("document.documentElement.scrollWidth"), 390)
        self.assertEqual(b.js("[...document.querySelectorAll('section, figure, .scroll')]"
                              ".filter(e => e.getBoundingClientRect().right > 391).length"), 0)
        self.assertGreater(count(b.picture(), ONEDNN), 500)

    def test_dark_and_printed(self):
        b = self.browser
        b.media(scheme="dark")
        self.assertGreater(count(b.picture(), (0x18, 0x1d, 0x25)), 100000)
        b.media("print")
        self.assertEqual(b.js("getComputedStyle(document.querySelector('nav')).display"), "none")
        pages = base64.b64decode(b.do("Page.printToPDF")["data"])
        self.assertTrue(pages.startswith(b"%PDF"))


if __name__ == "__main__":
    if CHROMIUM is None:
        print("report_browser: Skipped\n\nchromium is not installed: apt install chromium")
        sys.exit(77)
    main()
