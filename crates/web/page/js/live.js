// Live updates: new readings as soon as they are written, and silent devices.
import { request, el, fill, announce } from "./common.js";
import { formatClock, millis, nanos } from "./format.js";

/** Subscribes to the series of a plot page. */
export class Live {
  constructor(page) {
    this.page = page;
    this.silent = new Map(); // silent devices and since when
    this.read = new Map(); // last poll of each device
    this.banner = el("div", { class: "banner", hidden: true });
  }

  unsubscribe() {
    if (this.source) this.source.close();
    this.source = null;
    this.subscribed = "";
    this.redraw = clearTimeout(this.redraw);
    clearTimeout(this.retry);
    clearInterval(this.timer);
  }

  subscribe() {
    const wanted = this.page.state.live ? this.page.state.series.join(",") : "";
    if (!wanted) {
      this.unsubscribe();
      this.silent.clear();
      this.banner.hidden = true;
      return;
    }
    if (wanted === this.subscribed) return;
    this.unsubscribe();
    this.silent.clear();
    this.subscribed = wanted;
    this.source = new EventSource(`/api/live?series=${wanted}`);
    this.source.addEventListener("points", (event) => this.onPoints(JSON.parse(event.data)));
    this.source.addEventListener("open", () => this.page.live.classList.add("on"));
    this.source.addEventListener("error", () => {
      this.page.live.classList.remove("on");
      // The browser reconnects unless the server refused the request.
      if (this.source?.readyState === EventSource.CLOSED) {
        this.unsubscribe();
        this.retry = setTimeout(() => this.subscribe(), 5000);
      }
    });
    this.updateBanner();
    this.timer = setInterval(() => this.updateBanner(), 5000);
    this.loadRecent();
  }

  /** Loads the readings before the subscription: a device may be silent already. */
  async loadRecent() {
    const devices = new Map(this.page.state.series.map((id) => this.page.known.get(id)).filter(Boolean).map((one) => [one.device, one]));
    for (const one of devices.values()) {
      const now = Date.now() + (this.page.ahead || 0);
      const [from_ns, to_ns] = [nanos(now - (20 * one.period_ns) / 1e6), nanos(now)];
      const { points } = await request("/api/points", { series: one.id, from_ns, to_ns, most: 100 }).catch(() => ({ points: [] }));
      const last = points.findLastIndex((point) => this.answered(one.id, point));
      const silent = points[last + 1];
      if (points.length) this.read.set(one.device, Math.max(this.read.get(one.device) || 0, millis(points[points.length - 1].asked_ns)));
      if (silent && !this.silent.has(one.device)) this.silent.set(one.device, millis(silent.asked_ns));
    }
    this.updateBanner();
  }

  /** Returns whether a poll was answered: a ping without an answer may be a response without delay. */
  answered(id, point) {
    const one = this.page.known.get(id);
    const missing = point.value === null || (one?.quantity === "responding" && point.value === 0);
    return point.answered_ns !== null && !(one?.object === "host" && one.quantity !== "seen" && missing);
  }

  /** Processes new readings. Redraws at most once per second. */
  onPoints({ series }) {
    for (const { id, device, points } of series) {
      for (const point of points) {
        this.read.set(device, Math.max(this.read.get(device) || 0, millis(point.asked_ns)));
        const answered = this.answered(id, point);
        if (!answered && !this.silent.has(device)) this.silent.set(device, millis(point.asked_ns));
        if (answered && this.silent.delete(device)) announce(`${device} answers again`);
      }
    }
    this.updateBanner();
    this.updates = (this.updates || 0) + 1;
    this.page.plots.dataset.updates = String(this.updates);
    if (!this.redraw) {
      this.redraw = setTimeout(() => {
        this.redraw = null;
        if (!this.page.dragged && this.page.state.live) this.page.refresh();
      }, 1000);
    }
  }

  updateBanner() {
    const lines = [...this.silent].map(([device, since]) => `${device} has not answered since ${formatClock(since)}`);
    const now = Date.now() + (this.page.ahead || 0);
    for (const [device, last] of this.read) {
      const plotted = this.page.state.series.map((id) => this.page.known.get(id)).filter((one) => one?.device === device);
      const timeout = Math.max(60000, ...plotted.map((one) => (5 * one.period_ns) / 1e6));
      if (plotted.length && now - last > timeout) lines.push(`${device} has not been polled since ${formatClock(last)}`);
    }
    this.banner.hidden = lines.length === 0;
    const text = lines.join("; ");
    if (this.banner.textContent !== text) {
      fill(this.banner, text);
      if (text) announce(text);
    }
  }
}
