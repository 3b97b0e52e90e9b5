// The start page: the busiest interfaces as small plots, recent events, silent devices.
import { announce, el, fill, pageUrl, request } from "./common.js";
import { EVENTS, formatTime, formatValue, millis, nanos } from "./format.js";
import { panelPlot } from "./panel.js";
import { events, lines } from "./series.js";
import { Status, table } from "./status.js";

const RANGE_MS = 3600000;
const HEIGHT = 150;
/** Readings older than this are plotted up to the last one instead of up to now. */
const RECENT_MS = 600000;

export class Overview extends Status {
  constructor(root, go) {
    super(root, go, "Overview");
    this.summary = el("p", { class: "summary" });
    this.plots = el("div", { class: "cards" });
    this.noPlots = el("p", { class: "hint", hidden: true }, "No interface has counted octets yet.");
    this.silent = el("div", { id: "silent" });
    this.recent = el("div", { id: "recent" });
    this.cards = new Map();
    fill(this.body, this.summary,
      el("h2", {}, "Busiest interfaces"), this.noPlots, this.plots,
      el("h2", {}, "Silent devices"), this.silent,
      el("h2", {}, "Recent events"), this.recent);
    this.redraw = () => this.cards.forEach((card) => this.drawCard(card));
    this.resize = new ResizeObserver(this.redraw);
    this.resize.observe(this.plots);
    addEventListener("colours", this.redraw);
  }

  close() {
    super.close();
    this.resize.disconnect();
    removeEventListener("colours", this.redraw);
  }

  /** Loads the overview, and the last hour of its interfaces. */
  async load() {
    const overview = await request("/api/overview");
    const views = await Promise.all(overview.interfaces.map(async (one) => {
      const series = one.series.slice(0, 8);
      const isRecent = millis(overview.now_ns) - millis(one.at_ns) < RECENT_MS;
      const end = isRecent ? millis(overview.now_ns) : millis(one.at_ns) + 1;
      const view = await request("/api/view", { series: series.join(","), from_ns: nanos(end - RANGE_MS), to_ns: nanos(end), buckets: 180 });
      const [from, to] = [millis(view.from_ns), millis(view.to_ns)];
      const time = isRecent ? { last: "3600" } : { from: Math.round(from), to: Math.round(to) };
      return { ...view, from, to, count: view.buckets, length: (to - from) / view.buckets, url: pageUrl("plot", { s: series.join(","), ...time }) };
    }));
    return { ...overview, views };
  }

  draw({ devices, responding, interfaces, events: recent, silent, views }) {
    fill(this.summary, devices
      ? `${devices} ${devices === 1 ? "device" : "devices"}, ${responding} responding, ${silent.length} silent.`
      : "The archive has no devices yet. Start a poller with: trunkline monitor poll");
    this.drawInterfaces(interfaces, views);
    this.drawSilent(silent);
    fill(this.recent, table("Recent events", [["Time"], ["Device"], ["Event"], ["Meaning"]], recent.map((event) => {
      const [meaning, weight] = EVENTS[event.name] || ["", "note"];
      const last = event.count > 1 ? ` – ${formatTime(millis(event.last_ns)).slice(11)} (${event.count} polls)` : "";
      return [`${formatTime(millis(event.first_ns))}${last}`, event.device, el("span", { class: weight }, event.name), meaning];
    }), "No events in the last polls."));
  }

  drawInterfaces(interfaces, views) {
    this.noPlots.hidden = interfaces.length > 0;
    const cards = interfaces.map((one, at) => {
      const key = `${one.device} ${one.object}`;
      const card = this.cards.get(key) || this.addCard(key, one);
      Object.assign(card, { view: views[at], lines: lines(views[at], { minus: [], bits: true }) });
      card.link.setAttribute("href", views[at].url);
      const directions = card.lines.map(({ series, samples, time, sum, factor }) => `${series.direction} ${formatValue(samples && time ? (sum / time) * factor : NaN, "b/s")}`);
      fill(card.rates, directions.join(" · "));
      return card;
    });
    const shown = cards.map((card) => card.element);
    // Keep the elements in place if nothing has changed, so that the keyboard focus stays.
    if (shown.length !== this.plots.children.length || shown.some((element, at) => this.plots.children[at] !== element)) fill(this.plots, shown);
    for (const [key, card] of this.cards) if (!cards.includes(card)) this.cards.delete(key);
    cards.forEach((card) => this.drawCard(card));
    this.plots.dataset.ready = String((this.drawn = (this.drawn || 0) + 1));
  }

  addCard(key, { device, label }) {
    const panel = el("div", { class: "panel" });
    const link = el("a", {}, `${device} ${label}`);
    const rates = el("p", { class: "rates" });
    const card = { chart: new Chart(panel), link, rates, element: el("article", { class: "card" }, el("h3", {}, link), rates, panel) };
    this.cards.set(key, card);
    return card;
  }

  drawCard({ chart, view, lines: drawn, element }) {
    if (!view || !element.isConnected) return;
    chart.draw(panelPlot(view, drawn.filter((line) => line.unit === "b/s"), events(view), { unit: "b/s", height: HEIGHT, cursor: false }));
  }

  drawSilent(silent) {
    const names = silent.map((one) => one.device).join(", ");
    if (this.announced !== undefined && this.announced !== names && names) announce(`Silent: ${names}`);
    this.announced = names;
    fill(this.silent, table("Silent devices", [["Device"], ["Last seen"]],
      silent.map((one) => [el("a", { href: pageUrl("switches", { device: one.device }), class: "bad" }, one.device), formatTime(millis(one.seen_ns))]),
      "All polled devices respond."));
  }
}
