# SPDX-License-Identifier: Apache-2.0
"""Tests yard report: the structure of the page, its data, and names that contain markup."""
import html.parser
import json
import pathlib
import tempfile

import report_trace
from command import Yard, main

VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(html.parser.HTMLParser):
    """Checks that elements nest, and collects values for the tests."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.texts = [], [], [], {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if "id" in dict(attributes):
            self.ids.append(dict(attributes)["id"])
        if tag not in VOID:
            self.open.append((tag, dict(attributes).get("id")))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, text):
        for tag, name in self.open:
            key = name or tag
            self.texts[key] = self.texts.get(key, "") + text


class Report(Yard):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.trace, self.page = self.folder / "t.json", self.folder / "report.html"
        report_trace.write(self.trace)

    def report(self):
        self.yard("report", "--trace", str(self.trace), "-o", str(self.page))
        return self.page.read_text(encoding="utf-8")

    def data(self):
        return json.loads(Page(self.report()).texts["data"])

    def test_page_is_complete_and_stands_alone(self):
        text = self.report()
        page = Page(text)
        self.assertTrue(text.startswith("<!DOCTYPE html>\n<html lang=\"en\">"))
        self.assertNotIn("SPDX", text)
        self.assertNotRegex(text, r"@[A-Z]+@")
        self.assertNotRegex(text, r"https?://(?!www\.w3\.org/2000/svg)")
        for tag, attributes in page.tags:
            self.assertNotIn(tag, ("link", "img", "iframe", "object"))
            self.assertNotIn("src", attributes)
            if attributes.get("href", "#")[0] != "#":
                self.fail(attributes)
            elif "href" in attributes:
                self.assertIn(attributes["href"][1:], page.ids)
            for key in ("for", "aria-labelledby"):
                if key in attributes:
                    self.assertIn(attributes[key], page.ids)
        self.assertEqual(len(page.ids), len(set(page.ids)))
        self.assertEqual([t for t, _ in page.tags].count("h1"), 1)
        tables = [a["id"] for t, a in page.tags if t == "table"]
        self.assertEqual([t for t, _ in page.tags].count("caption"), len(tables))
        self.assertEqual(tables, ["kernels", "matrix", "classes", "percentiles", "failed", "breakers", "events"])
        self.assertIn("default-src 'none'", text)
        self.assertIn("prefers-color-scheme: dark", text)
        self.assertIn("@media print", text)

    def test_hostile_names_stay_data(self):
        text = self.report()
        self.assertNotIn("<img", text)
        self.assertEqual(text.count("</script>"), 2)
        data = json.loads(Page(text).texts["data"])
        self.assertIn(report_trace.HOSTILE, [c["kernel"] for c in data["calls"]])
        name = self.folder / "<b>&.json"
        report_trace.write(name)
        self.yard("report", "--trace", str(name), "-o", str(self.page))
        page = Page(self.page.read_text(encoding="utf-8"))
        self.assertEqual(page.texts["h1"], "<b>&.json")
        self.assertNotIn("b", [t for t, _ in page.tags])

    def test_figures_are_those_of_the_trace(self):
        data = self.data()
        self.assertEqual({o["op"]: (o["calls"], o["hits"], o["misses"]) for o in data["ops"] if o["op"][0] != "<"},
                         {"linear": (1500, 1500, 0), "softmax": (100, 89, 11)})
        by_kernel = {(c["op"], c["kernel"]): c for c in data["calls"]}
        onednn = by_kernel["linear", "vendor.onednn"]
        self.assertEqual(onednn["calls"], 1000)
        self.assertEqual(onednn["time_ns"], sum(1000 * (40 + i % 7) for i in range(1000)))
        self.assertEqual(onednn["latency"]["count"], 1000)
        self.assertEqual(sum(count for _, count in onednn["latency"]["buckets"]), 1000)
        self.assertEqual([up for up, _ in onednn["latency"]["buckets"]], [40959, 49151])
        self.assertEqual(by_kernel["softmax", "default.simd"]["fallbacks"], 9)
        self.assertEqual(by_kernel["softmax", "vendor.acme"]["failures"], {"transient": 1})
        self.assertEqual(by_kernel["softmax", "vendor.acme"]["calls"], 0)
        self.assertEqual([e["kind"] for e in data["events"]], ["reload", "rollout", "rollout", "breaker", "fallback"])
        self.assertAlmostEqual(data["events"][0]["at"], 0.025)
        self.assertTrue(any("3 events were dropped" in r for r in data["remarks"]))
        rates = data["rates"]
        self.assertEqual(len(rates["times"]), 121)
        for series in rates["series"]:
            self.assertEqual(len(series["values"]), 120)
        linear = next(s for s in rates["series"] if s["op"] == "linear")
        self.assertAlmostEqual(sum(linear["values"]) * (rates["times"][1] - rates["times"][0]), 1500, delta=0.1)

    def test_many_events_and_ops_are_bounded(self):
        events = [report_trace.instant("selection", "x", 10.0 * i) for i in range(6000)]
        events += [report_trace.span(f"op{i}", "k", f"op{i}(f32[1])", 10.0 * i, 1) for i in range(50)]
        self.trace.write_text(json.dumps(events), encoding="utf-8")  # a bare list is also a valid trace
        data = self.data()
        self.assertEqual(len(data["events"]), 5000)
        self.assertIn("1000 more events are not listed.", data["remarks"])
        self.assertEqual(len(data["rates"]["series"]), 7)
        self.assertEqual(data["rates"]["series"][-1]["op"], "other ops")

    def test_deep_and_long_details_are_cut(self):
        deep = "[" * 100000 + "]" * 100000
        long = json.dumps("x" * 100000)
        self.trace.write_text('[{"name": "a", "cat": "reload", "ph": "i", "ts": 1, "args": {"a": {"b": %s, "c": [1, "d"]}, '
                              '"e": %s, "f": 1}}, {"cat": "kernel", "ts": 1, "args": %s}]' % (deep, long, deep),
                              encoding="utf-8")
        detail = self.data()["events"][0]["detail"]
        self.assertTrue(detail.startswith("a=b:...,c:... e=xxx"), detail[:50])
        self.assertLess(len(detail), 5000)

    def test_json_and_errors(self):
        answer = self.json("report", "--trace", str(self.trace), "-o", str(self.page))
        self.assertEqual(answer, {"file": str(self.page), "ops": 3, "classes": 5, "events": 5})
        for text in ("", "nonsense", "{}", "[]", '{"traceEvents": 3}', '{"traceEvents": [1, {}, {"cat": 1}]}',
                     '{"traceEvents": [{"cat": "kernel", "ts": -1, "dur": 1e300}, {"cat": "x", "ts": 1, "dur": -1}]}'):
            self.trace.write_text(text, encoding="utf-8")
            self.page.unlink(missing_ok=True)
            self.assertIn("invalid trace", self.wrong("report", "--trace", str(self.trace), "-o", str(self.page)))
            self.assertFalse(self.page.exists())
        self.assertIn("--trace: expected a file", self.wrong("report", "--trace", "none.json"))
        report_trace.write(self.trace)
        self.assertIn("cannot be written", self.wrong("report", "--trace", str(self.trace), "-o", "/none/r.html", code=1))


if __name__ == "__main__":
    main()
