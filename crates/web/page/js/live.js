// What comes while somebody watches: readings as soon as they are written, and who does not answer.
import { ask, el, fill, say } from "./ask.js";
import { clock, millis, nanos } from "./figures.js";

/** Watches what a page plots. */
export class Live {
  constructor(page) {
    this.page = page;
    this.silent = new Map(); // devices that do not answer, and since when
    this.read = new Map(); // when each device was asked last
    this.banner = el("div", { class: "banner", hidden: true });
  }

  unwatch() {
    if (this.source) this.source.close();
    this.source = null;
    this.watched = "";
    this.soon = clearTimeout(this.soon);
    clearTimeout(this.again);
    clearInterval(this.ticking);
  }

  watch() {
    const wanted = this.page.state.live ? this.page.state.series.join(",") : "";
    if (!wanted) {
      this.unwatch();
      this.silent.clear();
      this.banner.hidden = true;
      return;
    }
    if (wanted === this.watched) return;
    this.unwatch();
    this.silent.clear();
    this.watched = wanted;
    this.source = new EventSource(`/api/live?series=${wanted}`);
    this.source.addEventListener("points", (event) => this.news(JSON.parse(event.data)));
    this.source.addEventListener("open", () => this.page.live.classList.add("on"));
    this.source.addEventListener("error", () => {
      this.page.live.classList.remove("on");
      // A browser tries again by itself, unless it was refused.
      if (this.source?.readyState === EventSource.CLOSED) {
        this.unwatch();
        this.again = setTimeout(() => this.watch(), 5000);
      }
    });
    this.tellSilent();
    this.ticking = setInterval(() => this.tellSilent(), 5000);
    this.lookBack();
  }

  /** What was so before somebody watched: a device may be silent already. */
  async lookBack() {
    const devices = new Map(this.page.state.series.map((id) => this.page.known.get(id)).filter(Boolean).map((one) => [one.device, one]));
    for (const one of devices.values()) {
      const now = Date.now() + (this.page.ahead || 0);
      const [from_ns, to_ns] = [nanos(now - (20 * one.period_ns) / 1e6), nanos(now)];
      const { points } = await ask("/api/points", { series: one.id, from_ns, to_ns, most: 100 }).catch(() => ({ points: [] }));
      const last = points.findLastIndex((point) => this.answered(one.id, point));
      const silent = points[last + 1];
      if (points.length) this.read.set(one.device, Math.max(this.read.get(one.device) || 0, millis(points[points.length - 1].asked_ns)));
      if (silent && !this.silent.has(one.device)) this.silent.set(one.device, millis(silent.asked_ns));
    }
    this.tellSilent();
  }

  /** Whether somebody answered: a ping without an answer may be a response that lacks the delay. */
  answered(id, point) {
    const one = this.page.known.get(id);
    const dead = point.value === null || (one?.quantity === "responding" && point.value === 0);
    return point.answered_ns !== null && !(one?.object === "host" && one.quantity !== "seen" && dead);
  }

  /** Something was read. At most once a second all is drawn anew. */
  news(news) {
    for (const { id, device, points } of news.series) {
      for (const point of points) {
        this.read.set(device, Math.max(this.read.get(device) || 0, millis(point.asked_ns)));
        const answered = this.answered(id, point);
        if (!answered && !this.silent.has(device)) this.silent.set(device, millis(point.asked_ns));
        if (answered && this.silent.delete(device)) say(`${device} answers again`);
      }
    }
    this.tellSilent();
    this.heard = (this.heard || 0) + 1;
    this.page.plots.dataset.heard = String(this.heard);
    if (!this.soon) {
      this.soon = setTimeout(() => {
        this.soon = null;
        if (!this.page.drag && this.page.state.live) this.page.refresh();
      }, 1000);
    }
  }

  tellSilent() {
    const lines = [...this.silent].map(([device, since]) => `${device} does not answer since ${clock(since)}`);
    const now = Date.now() + (this.page.ahead || 0);
    for (const [device, last] of this.read) {
      const plotted = this.page.state.series.map((id) => this.page.known.get(id)).filter((one) => one?.device === device);
      const patience = Math.max(60000, ...plotted.map((one) => (5 * one.period_ns) / 1e6));
      if (plotted.length && now - last > patience) lines.push(`nobody has asked ${device} since ${clock(last)}`);
    }
    this.banner.hidden = lines.length === 0;
    const text = lines.join("; ");
    if (this.banner.textContent !== text) {
      fill(this.banner, text);
      if (text) say(text);
    }
  }
}
