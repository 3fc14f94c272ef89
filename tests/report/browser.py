#!/usr/bin/env python3
"""The report's page in a real browser: drawn, picked, brushed, printed, and fed hostile texts.

    browser.py                          all tests; 77 (skipped) where there is no browser
    browser.py --pictures FOLDER        pictures for people, light, dark and of a phone
    browser.py --bench [CONFIGURATIONS] how long many configurations take to open

With TUNE_BUILD_DIR set, the page of the real `tunectl report` is looked at too."""

import hashlib
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import fixtures
import page
from webdriver import Browser, program

CHARTS = ["roofline", "heat", "parallel", "distribution", "importance", "convergence", "outcomes",
          "ties"]
TEXTS = ["loss", "provenance"]

# Waits until the page has drawn what is in sight: two frames, and the chart's own "finished".
SETTLE = """
const done = arguments[arguments.length - 1];
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));
"""

# How many colours the canvases of a section show: one or none when nothing is drawn.
COLOURS = """
const seen = new Set();
for (const canvas of document.querySelectorAll('#' + arguments[0] + ' canvas')) {
    const copy = new OffscreenCanvas(canvas.width, canvas.height)
        .getContext('2d', {willReadFrequently: true});
    copy.drawImage(canvas, 0, 0);
    new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer)
        .forEach((pixel) => seen.add(pixel));
}
return seen.size;
"""

OPTION = """
const chart = echarts.getInstanceByDom(document.querySelector('#' + arguments[0] + ' .chart'));
return JSON.stringify(chart.getOption()[arguments[1]], (key, value) =>
    ArrayBuffer.isView(value) ? Array.from(value) : key === 'rows' ? undefined : value);
"""

# Milliseconds from the start of loading to the first chart on the screen.
OPENED = """
const done = arguments[arguments.length - 1];
const look = () => document.querySelector('#roofline canvas')
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0))
    : requestAnimationFrame(look);
look();
"""


# What is on paper, looked at when the page has made itself ready for it.
WATCH_PAPER = """
const colours = function () { """ + COLOURS + """ };
window.addEventListener('beforeprint', () => {
    const sections = Array.from(document.querySelectorAll('.card'), (card) => card.id);
    window.paper = {
        theme: document.documentElement.dataset.theme,
        colours: Object.fromEntries(sections.map((section) => [section, colours(section)])),
        closed: document.querySelectorAll('details:not([open]):not([hidden])').length,
    };
});
"""


def setUpModule():
    """One browser for all; each test opens what it needs."""
    Page.folder = tempfile.TemporaryDirectory(prefix="tunerd-report-")
    unittest.addModuleCleanup(Page.folder.cleanup)
    Page.browser = Browser()
    unittest.addModuleCleanup(Page.browser.close)


class Page(unittest.TestCase):
    folder = None
    browser = None

    def setUp(self):
        self.browser.size(1000, 700)
        self.browser.prefer("light")

    def tearDown(self):
        said = [line["message"] for line in self.browser.console()]
        self.assertEqual([], said, "the console must stay silent")

    def show(self, model, hash_text=""):
        path = os.path.join(self.folder.name, self.id().rsplit(".", 1)[1] + ".html")
        self.go(page.write(model, path) + hash_text)

    def go(self, url):
        self.browser.open("about:blank")
        self.browser.open(url)
        self.settle()

    def settle(self):
        self.browser.run_async(SETTLE)

    def see(self, section):
        """Scrolls to a section and lets it be drawn."""
        self.browser.run("document.getElementById(arguments[0]).scrollIntoView()", section)
        self.settle()

    def colours(self, section):
        self.see(section)
        return self.browser.run(COLOURS, section)

    def option(self, section, part):
        self.see(section)
        return self.browser.run(OPTION, section, part)

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0]).textContent", selector)

    def pick(self, select, value):
        self.browser.run("const e = document.getElementById(arguments[0]); e.value = arguments[1];"
                         "e.dispatchEvent(new Event('change'))", select, str(value))
        self.settle()

    def picked(self, select):
        return self.browser.run("return document.getElementById(arguments[0]).value", select)

    def brush(self, axis_share, from_share, to_share):
        """Drags along the axis at this share of the width, between shares of its height."""
        self.see("parallel")
        box = self.browser.run("const r = document.querySelector('#parallel .chart')"
                               ".getBoundingClientRect(); return [r.x, r.y, r.width, r.height]")
        x = round(box[0] + 34 + axis_share * (box[2] - 34 - 74))
        axis_top, axis_height = box[1] + 54, box[3] - 54 - 22
        self.browser.drag((x, round(axis_top + from_share * axis_height)),
                          (x, round(axis_top + to_share * axis_height)))
        self.settle()

    def brushed(self):
        """The number of those that are listed as brushed."""
        return int(re.search(r"[\d,]+", self.text(".brushed")).group().replace(",", ""))


class Drawing(Page):
    def test_every_section_of_every_group_and_shape_is_drawn(self):
        model = fixtures.ordinary()
        for index, group in enumerate(model["groups"]):
            for shape in (-1, len(group["shapes"]) - 1):
                self.show(model, f"#group={index}&shape={shape}")
                for section in CHARTS:
                    with self.subTest(group=index, shape=shape, section=section):
                        self.assertGreater(self.colours(section), 3)
                for section in TEXTS:
                    self.see(section)
                    self.assertNotEqual("", self.text(f"#{section} .extra"))

    def test_nothing_is_asked_of_any_network(self):
        self.show(fixtures.ordinary())
        for section in CHARTS:
            self.see(section)
        asked = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        self.assertEqual([], self.browser.run(asked))
        self.assertIn("default-src 'none'", page.part("page.html"))

    def test_charts_are_made_when_they_come_into_sight(self):
        self.show(fixtures.ordinary())
        count = "return document.querySelectorAll('.chart canvas').length"
        first = self.browser.run(count)
        self.see("ties")
        self.assertGreater(self.browser.run(count), first)

    def test_failed_rows_are_never_drawn_as_times(self):
        model = fixtures.report(fixtures.group(count=60, sizes=[(512, 512, 512)]))
        rows = model["groups"][0]["rows"]
        rows["median_ns"] = [1.0 if ns is None else ns for ns in rows["median_ns"]]
        self.show(model)
        for section in ["heat", "distribution", "convergence", "ties"]:
            self.see(section)
            self.browser.run("document.querySelector('#' + arguments[0] + ' details').open = true",
                             section)
        self.settle()
        for section in ["headline", "heat", "parallel", "distribution", "convergence", "ties"]:
            self.assertNotRegex(self.text("#" + section), r"\b\d+\u00a0ns", section)
        lowest = self.browser.run("return Math.min(...echarts.getInstanceByDom(document"
                                  ".querySelector('#parallel .chart')).getOption().series[0]"
                                  ".data.map((row) => row[row.length - 1]))")
        self.assertGreater(lowest, 3.0)

    def test_without_limits_no_ceiling_is_drawn_and_a_sentence_says_how_to_get_them(self):
        self.show(fixtures.ordinary(), "#group=2")
        self.assertNotIn("ceilings", self.option("roofline", "series"))
        self.assertIn("tunectl devices --measure", self.text("#roofline .say"))
        self.show(fixtures.ordinary(), "#group=0")
        self.assertIn("ceilings", self.option("roofline", "series"))
        self.assertNotIn("tunectl devices --measure", self.text("#roofline .say"))

    def test_little_or_nothing_measured_is_said_in_words(self):
        self.show(fixtures.failures_only())
        for section in CHARTS + TEXTS:
            self.see(section)
        self.assertIn("No configuration was measured", self.text("#distribution .say"))
        self.assertGreater(self.colours("outcomes"), 3)
        self.show(fixtures.one_row())
        for section in CHARTS + TEXTS:
            self.see(section)
        self.assertIn("Too few", self.text("#importance .say"))
        self.assertIn("First measured–", self.text("#provenance"))
        self.pick("convergence-over", "seconds")
        self.assertIn("No configuration was measured", self.text("#convergence .say"))
        self.assertGreater(self.colours("distribution"), 3)
        self.show(fixtures.report())
        self.assertIn("no measurements", self.text("#headline"))

    def test_every_chart_has_words_and_a_table_for_those_who_do_not_see_it(self):
        self.show(fixtures.ordinary(), "#shape=1")
        for section in CHARTS:
            with self.subTest(section=section):
                self.see(section)
                self.browser.run("document.querySelector('#' + arguments[0] + ' details').open = "
                                 "true", section)
                self.settle()
                label = self.browser.run("return document.querySelector('#' + arguments[0] + "
                                         "' .chart').getAttribute('aria-label')", section)
                self.assertGreater(len(label), 40)
                cells = "return document.querySelectorAll('#' + arguments[0] + ' tbody td').length"
                self.assertGreater(self.browser.run(cells, section), 0)

    def test_the_library_is_the_one_that_the_readme_tells_of(self):
        with open(os.path.join(page.PARTS, "echarts.min.js"), "rb") as file:
            self.assertIn(hashlib.sha256(file.read()).hexdigest(), page.part("README.md"))


class Picking(Page):
    def test_group_and_shape_change_what_is_drawn_and_stay_in_the_address(self):
        self.show(fixtures.ordinary())
        before = self.option("distribution", "series")
        self.pick("shape", 1)
        one = self.option("distribution", "series")
        self.assertNotEqual(before, one)
        self.pick("group", 2)
        self.assertIn("softmax", self.text("h1"))
        self.assertEqual("-1", self.picked("shape"))
        self.assertNotEqual(one, self.option("distribution", "series"))
        self.pick("shape", 2)
        self.assertIn("group=2&shape=2", self.browser.run("return location.hash"))
        self.browser.run("location.hash = '#group=1&shape=0'")
        self.settle()
        self.assertIn("transpose", self.text("h1"))
        self.assertEqual("0", self.picked("shape"))

    def test_an_address_that_names_nothing_shows_the_first(self):
        self.show(fixtures.ordinary(), "#group=77&shape=-9&theme=pink")
        self.assertEqual("0", self.picked("group"))
        self.assertEqual("-1", self.picked("shape"))

    def test_the_heat_map_follows_its_three_pickers(self):
        self.show(fixtures.ordinary(), "#shape=0")
        seen = [self.option("heat", "series")]
        for select, value in [("heat-x", 6), ("heat-y", 3), ("heat-of", "median")]:
            self.pick(select, value)
            seen.append(self.option("heat", "series"))
        self.assertEqual(4, len(set(seen)))
        self.assertIn("PAD", self.option("heat", "xAxis"))
        self.pick("heat-y", 6)
        self.assertGreater(self.colours("heat"), 3)

    def test_pickers_work_by_keyboard(self):
        self.show(fixtures.ordinary(), "#shape=0")
        self.see("heat")
        before = self.picked("heat-of")
        self.browser.run("document.getElementById('heat-of').focus()")
        self.browser.keys("m")
        self.settle()
        self.assertEqual(["best", "median"], [before, self.picked("heat-of")])
        focus = self.browser.run("return document.activeElement.id")
        self.assertEqual("heat-of", focus)

    def test_the_roofline_takes_either_count_of_bytes(self):
        self.show(fixtures.ordinary(), "#shape=1")
        before = self.option("roofline", "xAxis")
        self.pick("roofline-bytes", "requested")
        self.assertNotEqual(before, self.option("roofline", "xAxis"))

    def test_convergence_is_over_evaluations_or_seconds(self):
        self.show(fixtures.ordinary(), "#shape=1")
        before = self.option("convergence", "series")
        self.pick("convergence-over", "seconds")
        self.assertNotEqual(before, self.option("convergence", "series"))

    def test_a_search_and_its_confirmation_are_one_line_and_evaluations_are_not_rounded(self):
        self.show(fixtures.report(fixtures.group(count=1500, sizes=[(512, 512, 512)])))
        self.see("convergence")
        self.assertIn("1 run;", self.text("#convergence .say"))
        self.browser.run("document.querySelector('#convergence details').open = true")
        self.settle()
        after = self.text("#convergence tbody td:last-child").replace(",", "")
        rows = fixtures.group(count=1500, sizes=[(512, 512, 512)])["rows"]
        times = [ns or math.inf for ns in rows["median_ns"]]
        self.assertEqual(times.index(min(times)) + 1, int(after))

    def test_shares_that_count_twice_are_said_to(self):
        model = fixtures.report(fixtures.group(count=60, sizes=[(512, 512, 512)]))
        self.show(model)
        self.see("importance")
        self.assertNotIn("more than 100", self.text("#importance .say"))
        for entry in model["groups"][0]["importance"]:
            entry["shares"] = [0.5, 0.4, 0.3] + entry["shares"][3:]
            entry["rest"] = 0
        self.show(model)
        self.see("importance")
        self.assertIn("more than 100", self.text("#importance .say"))

    def test_times_that_are_all_equal_are_a_bar_that_is_seen(self):
        model = fixtures.report(fixtures.group(count=60, sizes=[(512, 512, 512)]))
        rows = model["groups"][0]["rows"]
        for name in ["median_ns", "lo_ns", "hi_ns"]:
            rows[name] = [ns and 20000 for ns in rows[name]]
        self.show(model)
        self.see("distribution")
        width = """const chart = echarts.getInstanceByDom(document.querySelector(
            '#distribution .chart')); const bar = chart.getOption().series[0].data;
            return chart.convertToPixel({xAxisIndex: 0}, bar[1][0]) -
                chart.convertToPixel({xAxisIndex: 0}, bar[0][0]);"""
        self.assertGreater(self.browser.run(width), 3)

    def test_a_configuration_is_drawn_by_the_row_that_stands_though_others_came_later(self):
        model = fixtures.report(fixtures.group(count=60, sizes=[(512, 512, 512)]))
        rows, best = model["groups"][0]["rows"], model["groups"][0]["shapes"][0]["best"]
        stands = next(i for i in range(len(rows["stands"]))
                      if rows["stands"][i] and rows["config"][i] == best)
        for name, column in rows.items():
            column.append(0 if name == "stands" else column[stands])
        rows["median_ns"][-1] *= 3
        before = rows["median_ns"][stands] / 1000
        self.show(model)
        self.assertIn(f"{before:.3g}", self.text("#headline .tile dd"))

    def test_the_pointer_brushes_and_the_button_clears(self):
        self.show(fixtures.ordinary(), "#shape=1")
        self.see("parallel")
        every = self.brushed()
        self.brush(1.0, 0.98, 0.6)
        some = self.brushed()
        self.assertTrue(0 < some < every, f"{some} of {every}")
        self.brush(0.0, 0.02, 0.3)
        fewer = self.brushed()
        self.assertTrue(0 < fewer < some, f"{fewer} of {some}")
        self.assertIn("brushed: best", self.text(".brushed"))
        self.browser.run("document.querySelector('#parallel .clear').click()")
        self.settle()
        self.assertEqual(every, self.brushed())

    def test_the_fastest_are_kept_without_a_pointer(self):
        self.show(fixtures.ordinary(), "#shape=1")
        self.see("parallel")
        every = self.brushed()
        self.pick("parallel-keep", "0.1")
        self.assertEqual(every // 10, self.brushed())
        self.browser.run("document.querySelector('#parallel .clear').click()")
        self.assertEqual("all", self.picked("parallel-keep"))


class Looks(Page):
    GROUND = "return getComputedStyle(document.body).backgroundColor"

    def test_light_and_dark_follow_the_system_and_the_switch(self):
        self.show(fixtures.ordinary())
        light, chart = self.browser.run(self.GROUND), self.option("importance", "xAxis")
        self.browser.prefer("dark")
        self.settle()
        dark = self.browser.run(self.GROUND)
        self.assertNotEqual(light, dark)
        self.assertNotEqual(chart, self.option("importance", "xAxis"))
        self.browser.run("document.getElementById('theme').click()")
        self.settle()
        self.assertEqual(light, self.browser.run(self.GROUND))
        self.assertEqual(chart, self.option("importance", "xAxis"))
        self.assertIn("theme=light", self.browser.run("return location.hash"))

    def test_a_phone_has_nothing_to_scroll_sideways(self):
        self.browser.size(360, 740, mobile=True)
        for model in [fixtures.ordinary(), fixtures.hostile()]:
            for shape in [-1, 1]:
                self.show(model, f"#shape={shape}")
                for section in CHARTS + TEXTS:
                    self.see(section)
                width = self.browser.run("return document.documentElement.scrollWidth")
                self.assertEqual(360, width)

    def test_paper_has_every_chart_and_the_screen_is_as_before_afterwards(self):
        self.browser.prefer("dark")
        self.show(fixtures.ordinary(), "#shape=1")
        dark = self.browser.run(self.GROUND)
        self.browser.run(WATCH_PAPER)
        pdf = self.browser.paper()
        self.assertGreater(len(re.findall(rb"/Type\s*/Page\b", pdf)), 3)
        paper = self.browser.run("return window.paper")
        self.assertEqual("light", paper["theme"])
        self.assertEqual([section for section in CHARTS if paper["colours"][section] < 4], [])
        self.assertEqual(0, paper["closed"])
        self.settle()
        self.assertEqual(dark, self.browser.run(self.GROUND))
        for section in CHARTS:
            self.assertGreater(self.colours(section), 3)
        open_tables = self.browser.run("return document.querySelectorAll('details[open]').length")
        self.assertEqual(0, open_tables)

    def test_texts_from_foreign_files_stay_texts(self):
        self.show(fixtures.hostile())
        for shape in [-1, 0]:
            self.pick("shape", shape)
            for section in CHARTS + TEXTS:
                self.see(section)
                self.hover(section)
            self.browser.run("document.querySelectorAll('details').forEach((t) => t.open = true)")
            self.settle()
        tips = self.browser.run("return document.querySelectorAll('.tip').length")
        self.assertGreaterEqual(tips, 5)
        self.assertFalse(self.browser.run("return 'broken' in window"))
        strange = "return document.querySelectorAll('img, svg, body script:not([type])').length"
        self.assertEqual(2, self.browser.run(strange))
        self.assertIn(fixtures.HOSTILE[0], self.text("#provenance"))

    def hover(self, section):
        """Shows the tip of a section's first item; the parallel coordinates have none."""
        if section == "parallel" or section in TEXTS:
            return
        self.browser.run("echarts.getInstanceByDom(document.querySelector('#' + arguments[0] + "
                         "' .chart')).dispatchAction({type: 'showTip', seriesIndex: 0, "
                         "dataIndex: 0})", section)
        self.settle()


class Amounts(Page):
    def test_twenty_thousand_configurations_are_drawn(self):
        self.show(fixtures.many())
        opened = self.browser.run_async(OPENED)
        print(f"20,000 configurations: opened in {opened:.0f} ms", file=sys.stderr)
        for section in CHARTS:
            self.assertGreater(self.colours(section), 3, section)
        self.brush(1.0, 0.98, 0.8)
        self.assertTrue(0 < self.brushed() < 17000)


class Real(Page):
    def test_the_shipped_records_are_drawn_from_the_real_command(self):
        command = os.path.join(os.environ.get("TUNE_BUILD_DIR", ""), "bin", "tunectl")
        path = os.path.join(self.folder.name, "real.html")
        records = os.path.join(page.SOURCE, "tuning_db", "records", "sm_90-nvidia-h200.jsonl")
        if "TUNE_BUILD_DIR" not in os.environ:
            self.skipTest("TUNE_BUILD_DIR names no build")
        subprocess.run([command, "report", "--records", records, "-o", path], check=True,
                       timeout=60)
        self.go("file://" + path)
        groups = self.browser.run("return document.getElementById('group').options.length")
        self.assertGreater(groups, 3)
        for group in range(groups):
            self.pick("group", group)
            for section in CHARTS + TEXTS:
                self.see(section)
            self.assertGreater(self.colours("distribution"), 3)
            self.assertGreater(self.colours("ties"), 3)


# --- pictures and figures -------------------------------------------------------------------------

def pictures(folder):
    """What people compare by eye: kept small, in tests/report/screenshots/."""
    os.makedirs(folder, exist_ok=True)
    looks = [("light", 760, "heat", "#shape=1"), ("dark", 760, "roofline", "#"),
             ("phone", 360, "headline", "#shape=1")]
    for name, width, section, hash_text in looks:
        with Browser(width, 640, dark=name == "dark") as browser:
            url = page.write(fixtures.ordinary(), os.path.join(browser.folder, "page.html"))
            browser.open(url + hash_text)
            for _ in range(2):
                browser.run("document.getElementById(arguments[0]).scrollIntoView()", section)
                browser.run_async(SETTLE)
            browser.picture(os.path.join(folder, name + ".png"))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}"


def bench(count):
    """Opens the page anew nine times, and then scrolls through it."""
    times = []
    with Browser() as browser:
        path = os.path.join(browser.folder, "page.html")
        url = page.write(fixtures.many(count), path)
        print(f"# {time.strftime('%Y-%m-%d')}, {machine()}; {platform.system()} "
              f"{platform.release()}; load average before "
              + " ".join(f"{load:.2f}" for load in os.getloadavg()))
        print(f"# Chromium {browser.version}, headless, drawing by software")
        print(f"# {count} configurations of 11 parameters, {os.path.getsize(path) / 1e6:.1f} MB; "
              "from the start of loading to the first chart on the screen")
        for _ in range(9):
            browser.open("about:blank")
            browser.open(url)
            times.append(browser.run_async(OPENED))
        print(f"open: median {statistics.median(times):.0f} ms, worst {max(times):.0f} ms of 9")
        print_sections(browser)


def print_sections(browser):
    timed = """const done = arguments[1]; const began = performance.now();
    document.getElementById(arguments[0]).scrollIntoView();
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() =>
        done(performance.now() - began), 0)));"""
    for section in CHARTS[1:]:
        print(f"scrolled to {section}: {browser.run_async(timed, section):.0f} ms")


def main():
    if not program("browser") or not program("driver"):
        print("skipped: there is no Chromium with its driver here (chromium, chromedriver)")
        return 77
    if "--pictures" in sys.argv:
        pictures(sys.argv[sys.argv.index("--pictures") + 1])
        return 0
    if "--bench" in sys.argv:
        rest = sys.argv[sys.argv.index("--bench") + 1:]
        bench(int(rest[0]) if rest else 20000)
        return 0
    return 0 if unittest.main(argv=sys.argv, exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
