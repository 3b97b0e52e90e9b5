// The plot page: selection, time range, plots, legend and events.
import { pageUrl, request, el, fill, announce } from "./common.js";
import { Chooser } from "./chooser.js";
import { EVENTS, formatAmount, formatClock, formatValue, millis, formatTime, nanos } from "./format.js";
import { Live } from "./live.js";
import { panelPlot } from "./panel.js";
import { events, lines } from "./series.js";

const PRESETS = [["3600", "1 hour"], ["10800", "3 hours"], ["432000", "5 days"], ["all", "All"]];
const MAX_SERIES = 8;
const MAX_ROWS = 500;
const MIN_RANGE = 100; // milliseconds

/** Parses the parameters of a URL: series, differences, time range. */
function parse(parameters) {
  const numbers = (text) => (text || "").split(",").filter((n) => /^\d+$/.test(n)).map(Number);
  const series = [...new Set(numbers(parameters.get("s")))].slice(0, MAX_SERIES);
  const minus = (parameters.get("d") || "").split(",").map((pair) => pair.split("-").map(Number))
    .filter(([a, b]) => series.includes(a) && series.includes(b) && a !== b).slice(0, 4);
  const from = Number(parameters.get("from"));
  const to = Number(parameters.get("to"));
  const zoomed = parameters.has("from") && from < to;
  const last = zoomed ? null : parameters.get("last") || "3600";
  const known = last === "all" || Number(last) > 0;
  return { series, minus, from, to, last: zoomed || known ? last : "3600", live: parameters.get("live") === "1", bits: parameters.get("bits") === "1" };
}

/** Returns the parameters of a URL. */
function toParameters(state) {
  return {
    s: state.series.join(","),
    d: state.minus.map((pair) => pair.join("-")).join(","),
    last: state.last,
    from: state.last ? null : Math.round(state.from),
    to: state.last ? null : Math.round(state.to),
    live: state.live ? "1" : null,
    bits: state.bits ? "1" : null,
  };
}

/** The plot page. `go` changes the URL. */
export class Plot {
  constructor(root, go) {
    this.go = go;
    this.state = parse(new URLSearchParams());
    this.known = new Map();
    this.panels = new Map();
    this.cursor = null;
    this.liveUpdates = new Live(this);
    this.chooser = new Chooser((change) => this.change(change));
    this.presets = PRESETS.map(([last, name]) => el("button", { type: "button", "data-last": last, click: () => this.change({ last }) }, name));
    this.live = el("button", { type: "button", class: "live", "aria-pressed": "false", click: () => this.change({ live: !this.state.live }) }, "Live");
    this.cells = el("button", { type: "button", id: "cells", hidden: true, click: () => this.change({ bits: !this.state.bits }) }, "Cells as bits");
    this.rangeLabel = el("p", { class: "shown" });
    this.errorBox = el("div", { class: "error", role: "alert", hidden: true });
    this.plots = el("div", {
      class: "plots", tabindex: "0", role: "group", "aria-describedby": "keys",
      "aria-label": "Plot", keydown: (event) => this.key(event),
    });
    this.legend = el("div", { class: "scroll" });
    this.eventList = el("section", { class: "events", "aria-labelledby": "events" });
    this.figures = el("details", { class: "figures", toggle: () => this.table() }, el("summary", {}, "All values as a table"), el("div", { class: "scroll" }));
    const move = (name, label, by) => el("button", { type: "button", "aria-label": label, title: label, click: by }, name);
    this.tools = el("div", { class: "tools", role: "group", "aria-label": "Time" },
      el("span", { class: "presets" }, this.presets),
      el("span", { class: "moves" },
        move("‹", "Earlier", () => this.chart?.pan(-0.5)), move("›", "Later", () => this.chart?.pan(0.5)),
        move("+", "Zoom in", () => this.chart?.zoom(0.5)), move("−", "Zoom out", () => this.chart?.zoom(2))),
      this.live,
      el("button", { type: "button", id: "reverse", click: () => this.reverse() }, "Other direction"),
      this.cells);
    const keys = el("p", { id: "keys", class: "hint" },
      "Drag to zoom, double-click to go back. Keys on the plot: ",
      ...[["←", ""], ["→", " move the cursor (with Shift ten), "], ["Space", " sets a mark and "], ["Enter", " zooms to the range between, "], ["+", " "], ["−", " zoom, "], ["Page ↑", " "], ["Page ↓", " move in time, "], ["Esc", " goes back."]]
        .flatMap(([key, after]) => [el("kbd", {}, key), after]));
    fill(root, el("div", { class: "layout" }, this.chooser.element,
      el("div", { class: "content" }, this.tools, this.rangeLabel, this.errorBox, this.liveUpdates.banner, this.plots, keys, this.legend, this.eventList, this.figures)));
    this.watchSize = new ResizeObserver(() => this.view && this.draw());
    this.watchSize.observe(this.plots);
    this.theme = () => this.view && this.draw();
    addEventListener("colours", this.theme);
  }

  close() {
    this.closed = true;
    this.watchSize.disconnect();
    removeEventListener("colours", this.theme);
    this.liveUpdates.unsubscribe();
  }

  /** Shows the view of a URL. */
  async show(parameters) {
    this.state = parse(parameters);
    for (const button of this.presets) button.setAttribute("aria-pressed", String(button.dataset.last === this.state.last));
    this.live.setAttribute("aria-pressed", String(this.state.live));
    this.cells.setAttribute("aria-pressed", String(this.state.bits));
    await this.refresh();
    this.liveUpdates.subscribe();
  }

  change(change) {
    const state = { ...this.state, ...change };
    // A preset replaces a zoom, and a zoom ends live updates.
    if (change.last) Object.assign(state, { from: 0, to: 0 });
    if (change.live && !state.last) state.last = "3600";
    state.minus = state.minus.filter(([a, b]) => state.series.includes(a) && state.series.includes(b));
    this.go(pageUrl("plot", toParameters(state)));
  }

  // --- requests

  /** Loads the view and draws it. Only the last of several concurrent calls has an effect. */
  async refresh() {
    const turn = (this.turn = (this.turn || 0) + 1);
    try {
      await this.loadSeries();
      if (turn !== this.turn || this.closed) return;
      const view = this.state.series.length ? await this.loadView() : null;
      if (turn !== this.turn || this.closed) return;
      this.errorBox.hidden = true;
      this.view = view;
      this.lines = view ? lines(view, this.state) : [];
      this.events = view ? events(view) : [];
      if (this.cursor !== null && (!view || this.cursor >= view.count)) this.cursor = null;
      this.draw();
      // Tests wait for this.
      this.plots.dataset.ready = view ? String((this.drawn = (this.drawn || 0) + 1)) : "";
    } catch (error) {
      if (turn === this.turn) this.fail(error);
    }
  }

  fail(error) {
    fill(this.errorBox, error.message);
    this.errorBox.hidden = false;
  }

  /** Loads the names of the series. */
  async loadSeries() {
    const missing = this.state.series.filter((id) => !this.known.has(id) || this.state.last === "all");
    if (missing.length) {
      const { series } = await request("/api/series", { series: missing.join(",") });
      series.forEach((one) => this.known.set(one.id, one));
    }
    // Update the chooser only after a change: the user may be selecting something else.
    const current = this.state.series.join();
    if (current !== this.selected) this.chooser.plotted(this.state.series, this.known);
    this.selected = current;
  }

  async loadView() {
    const { state } = this;
    const count = Math.max(60, Math.min(2000, Math.floor((this.plots.clientWidth || 900) / 1.5)));
    const parameters = { series: state.series.join(","), buckets: count };
    if (!state.last) {
      Object.assign(parameters, { from_ns: nanos(state.from), to_ns: nanos(Math.max(state.to, state.from + MIN_RANGE)) });
    } else if (state.last === "all") {
      const all = state.series.map((id) => this.known.get(id));
      const begin = Math.min(...all.map((one) => one.begin_ns ?? Infinity));
      const end = Math.max(...all.map((one) => one.end_ns ?? -Infinity));
      if (begin < end) Object.assign(parameters, { from_ns: nanos(begin / 1e6 - 1), to_ns: nanos(end / 1e6 + 1) });
    } else {
      const now = Date.now() + (this.ahead || 0);
      Object.assign(parameters, { from_ns: nanos(now - state.last * 1000), to_ns: nanos(now) });
    }
    const view = await request("/api/view", parameters);
    // Use the clock of the server.
    this.ahead = millis(view.now_ns) - Date.now();
    const [from, to] = [millis(view.from_ns), millis(view.to_ns)];
    return { ...view, from, to, count: view.buckets, length: (to - from) / view.buckets };
  }

  // --- drawing

  draw() {
    const { view, lines = [] } = this;
    this.cells.hidden = !lines.some((line) => line.series.unit === "cells");
    const units = view ? [...new Set(lines.map((line) => line.unit))] : [];
    for (const [unit, chart] of this.panels) if (!units.includes(unit)) { chart.element.remove(); this.panels.delete(unit); }
    for (const unit of units) {
      if (!this.panels.has(unit)) this.panels.set(unit, this.addPanel());
      const own = lines.filter((line) => line.unit === unit);
      const ids = own.map((line) => line.id);
      const events = this.events.filter((event) => [...event.series].some((id) => ids.includes(id)));
      this.panels.get(unit).draw(panelPlot(view, own, events, { unit, height: units.length > 1 ? 240 : 340 }));
    }
    this.plots.classList.toggle("empty", !view);
    fill(this.rangeLabel, view ? `${formatTime(view.from)} – ${formatTime(view.to)} · ${formatValue((view.length) / 1000, "s")} per bucket` : "Choose a device and one of its objects.");
    if (view) {
      const problems = this.events.filter((event) => EVENTS[event.name]?.[1] === "bad").length;
      this.plots.setAttribute("aria-label", `Plot of ${lines.map((line) => line.name).join(", ")}, ${formatTime(view.from)} to ${formatTime(view.to)}, ${problems ? `${problems} problems` : "no problems"}`);
    }
    this.legendTable();
    this.list();
    this.table();
    // uPlot computes its scales after this.
    queueMicrotask(() => this.view && this.place(this.cursor, true));
  }

  addPanel() {
    const element = el("div", { class: "panel" });
    this.plots.append(element);
    return new Chart(element, {
      zoom: (from, to) => this.to(from, to), reset: () => this.back(), say: announce,
      // The cursor stays while the plot has the keyboard focus.
      move: (bucket) => this.place(bucket === null && document.activeElement === this.plots ? this.cursor : bucket, !this.keyed),
    });
  }

  /** The plot that keys and buttons control. */
  get chart() { return this.panels.values().next().value; }

  get dragged() { return [...this.panels.values()].some((chart) => chart.isDragged); }

  /** Draws the legend with the values of the whole time range. */
  legendTable() {
    if (!this.view) return fill(this.legend);
    const heads = ["Series", "At the cursor", "Mean", "Lowest", "Highest", "Total", "Covered", ""];
    const rows = this.lines.map((line) => {
      const least = line.low.filter((v) => !Number.isNaN(v));
      const most = line.high.filter((v) => !Number.isNaN(v));
      const mean = line.counts ? (line.time > 0 ? (line.sum / line.time) * line.factor : NaN) : line.samples > 0 ? (line.sum / line.samples) * line.factor : NaN;
      const share = Math.min(1, line.time / ((this.view.to - this.view.from) / 1000));
      line.cell = el("td", { class: "number at" });
      const swatch = el("span", { class: `swatch${line.dash ? " dash" : ""}`, "aria-hidden": "true" });
      swatch.style.color = Chart.colour(line);
      const drop = () => this.change(line.pair
        ? { minus: this.state.minus.filter((pair) => pair.join() !== line.pair.join()) }
        : { series: this.state.series.filter((id) => id !== line.id) });
      const others = line.pair ? [] : this.lines.filter((other) => !other.pair && other !== line && other.unit === line.unit && other.counts === line.counts);
      const less = others.length > 0 && el("select", {
        "aria-label": `Difference of ${line.name} and another`,
        change: (event) => event.target.value && this.change({ minus: [...this.state.minus, [line.id, Number(event.target.value)]] }),
      }, el("option", { value: "" }, "minus …"), others.map((other) => el("option", { value: other.id }, other.name)));
      return el("tr", {}, el("th", { scope: "row" }, swatch, line.name), line.cell,
        ...[mean, least.length ? Math.min(...least) : NaN, most.length ? Math.max(...most) : NaN].map((v) => el("td", { class: "number" }, formatValue(v, line.unit))),
        el("td", { class: "number" }, line.counts ? formatAmount(line.sum, line.series.unit) : "–"),
        el("td", { class: "number" }, line.pair ? "–" : `${formatValue(share * 100, "", 3)}\u202f%`),
        el("td", { class: "does" }, less, el("button", { type: "button", "aria-label": `Remove ${line.name}`, title: "Remove", click: drop }, "×")));
    });
    fill(this.legend, el("table", { class: "legend" },
      el("caption", { class: "visually-hidden" }, "Plotted series"),
      el("thead", {}, el("tr", {}, heads.map((head, i) => el("th", { scope: "col", class: i > 0 && i < 7 ? "number" : null }, head)))),
      el("tbody", {}, rows)));
    const damaged = this.lines.flatMap((line) => line.damaged);
    if (damaged.length) this.legend.append(el("p", { class: "bad" }, `Some data could not be read: ${damaged[0]}`));
  }

  list() {
    const { view } = this;
    if (!view || !this.events.length) return fill(this.eventList);
    const at = (bucket) => formatTime(view.from + bucket * view.length);
    const rows = this.events.slice(0, 100).map((event) => {
      const [words, weight] = EVENTS[event.name] || ["", "note"];
      const names = this.lines.filter((line) => event.series.has(line.id)).map((line) => line.name);
      const what = names.length > 1 ? event.device : names[0] || event.device;
      return el("tr", {},
        el("td", {}, at(event.first), event.last > event.first ? ` – ${formatClock(view.from + (event.last + 1) * view.length)}` : ""),
        el("td", { class: weight }, event.name), el("td", {}, what), el("td", { class: "words" }, words));
    });
    fill(this.eventList, el("h2", { id: "events" }, "Events"),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Time", "Event", "Series", "Meaning"].map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, rows))),
      this.events.length > rows.length && el("p", { class: "hint" }, `and ${this.events.length - rows.length} more: zoom in`));
  }

  /** Fills the table of values while it is open. */
  table() {
    this.figures.hidden = !this.view;
    if (!this.view || !this.figures.open) return;
    const { view, lines } = this;
    const known = Array.from({ length: view.count }, (_, i) => i).filter((i) => lines.some((line) => !Number.isNaN(line.mean[i])));
    const rows = known.slice(-MAX_ROWS).reverse().map((i) => el("tr", {}, el("th", { scope: "row" }, formatTime(view.from + i * view.length)),
      lines.map((line) => el("td", { class: "number" }, formatValue(line.mean[i], line.unit, 4)))));
    fill(this.figures.lastChild, el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "From"), lines.map((line) => el("th", { scope: "col", class: "number" }, line.name)))),
      el("tbody", {}, rows)),
      known.length > rows.length && el("p", { class: "hint" }, `the last ${rows.length} of ${known.length}`));
  }

  // --- cursor and zoom

  place(bucket, quiet = false) {
    this.cursor = bucket;
    for (const chart of this.panels.values()) if (chart.cursor !== bucket) chart.place(bucket);
    for (const line of this.lines || []) {
      if (!line.cell) continue;
      const value = bucket === null ? null : line.mean[bucket];
      const bounds = bucket !== null && !Number.isNaN(line.low[bucket]) && ` (${formatValue(line.low[bucket], line.unit)} to ${formatValue(line.most[bucket], line.unit)})`;
      fill(line.cell, value === null ? "" : formatValue(value, line.unit, 4), bounds && el("small", {}, bounds));
    }
    if (bucket === null || quiet) return;
    const names = this.events.filter((event) => event.first <= bucket && bucket <= event.last).map((event) => event.name);
    clearTimeout(this.saying);
    this.saying = setTimeout(() => announce([formatTime(this.edge(bucket)), ...this.lines.map((line) => `${line.name} ${formatValue(line.mean[bucket], line.unit)}`), ...names].join(", ")), 300);
  }

  edge(bucket) { return this.view.from + bucket * this.view.length; }

  key(event) {
    this.keyed = true;
    this.chart?.key(event);
    this.keyed = false;
  }

  to(from, to) {
    if (to - from < MIN_RANGE) return;
    this.before = this.state.last || this.before;
    this.change({ from, to, last: null, live: false });
  }

  /** Returns to the range before the zoom. */
  back() {
    if (!this.state.last) this.change({ last: this.before || "3600" });
  }

  /** Replaces every series by that of the other direction, if there is one. */
  async reverse() {
    const { series } = this.state;
    const other = await Promise.all(series.map(async (id) => {
      const { device, object, direction, quantity } = this.known.get(id);
      if (!direction) return id;
      const all = await request("/api/series", { device, object });
      const found = all.series.find((one) => one.quantity === quantity && one.direction && one.direction !== direction);
      return found ? found.id : id;
    })).catch((error) => { this.fail(error); return series; });
    const turned = new Map(series.map((id, i) => [id, other[i]]));
    const unique = [...new Set(other)];
    this.change({ series: unique, minus: this.state.minus.map((pair) => pair.map((id) => turned.get(id))) });
  }
}
