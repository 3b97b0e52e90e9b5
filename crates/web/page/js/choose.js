// Choosing what is plotted: a device, a part of it, and which of its series.
import { ask, el, fill } from "./ask.js";
import { span } from "./figures.js";

const CLASSES = [["port", "Ports"], ["path", "Virtual paths"], ["channel", "Virtual channels"], ["host", "Host"], ["flow", "Flows"], ["connection", "Connections"], ["agent", "Agent"], ["other", "Others"]];
/** What is plotted first of a part. */
const MAIN = ["octets", "cells", "delay", "packets", "unicast-packets", "value"];
const MOST_PARTS = 2000;

const collate = new Intl.Collator("en", { numeric: true });

export class Chooser {
  /** `change` is told what shall be plotted. */
  constructor(change) {
    this.change = change;
    this.ids = [];
    this.device = el("select", { id: "device", change: () => this.chooseDevice() });
    this.find = el("input", { id: "find", type: "search", placeholder: "e.g. eth0", autocomplete: "off", input: () => this.listParts() });
    this.parts = el("select", { id: "part", size: "10", change: () => this.choosePart() });
    this.keep = el("input", { id: "keep", type: "checkbox" });
    this.series = el("fieldset", { id: "series", hidden: true });
    this.said = el("p", { class: "hint", role: "status" });
    this.element = el("section", { class: "chooser", "aria-label": "What to plot" },
      el("label", { for: "device" }, "Device"), this.device,
      el("label", { for: "find" }, "Find a part"), this.find,
      el("label", { for: "part" }, "Port, path, channel, flow …"), this.parts,
      el("label", { class: "check" }, this.keep, " beside what is plotted already"),
      this.series, this.said);
    this.begin();
  }

  async begin() {
    await this.guard(async () => {
      const { devices } = await ask("/api/devices");
      devices.sort(collate.compare);
      fill(this.device, el("option", { value: "" }, devices.length ? "choose …" : "none yet"), devices.map((name) => el("option", { value: name }, name)));
      if (this.wanted === undefined && devices.length === 1) this.wanted = { device: devices[0], object: "" };
      await this.follow();
    });
  }

  async guard(deed) {
    try {
      fill(this.said);
      await deed();
    } catch (error) {
      fill(this.said, error.message);
    }
  }

  /** What is plotted, so that it is chosen here too. */
  plotted(ids, known) {
    this.ids = ids;
    const first = known.get(ids[0]);
    const object = first && this.device.value === first.device && ids.some((id) => known.get(id).object === this.parts.value) ? this.parts.value : first?.object;
    if (first) this.wanted = { device: first.device, object };
    for (const box of this.series.querySelectorAll("input")) box.checked = ids.includes(Number(box.value));
    this.guard(() => this.follow());
  }

  async follow() {
    if (!this.wanted || this.device.options.length === 0) return;
    const { device, object } = this.wanted;
    if (this.device.value !== device || !this.objects) {
      this.device.value = device;
      await this.loadParts();
    }
    if (object && this.parts.value !== object) {
      this.parts.value = object;
      await this.loadSeries();
    }
  }

  async chooseDevice() {
    this.wanted = undefined;
    await this.guard(() => this.loadParts());
  }

  async loadParts() {
    const device = this.device.value;
    this.objects = [];
    this.series.hidden = true;
    const { objects, more } = device ? await ask("/api/objects", { device }) : { objects: [] };
    if (device !== this.device.value) return;
    this.objects = objects.sort((a, b) => collate.compare(a.label, b.label));
    this.listParts();
    if (more) fill(this.said, "This device has more parts than are listed.");
  }

  listParts() {
    const words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = this.parts.value;
    const fits = (this.objects || []).filter(({ label }) => words.every((word) => label.toLowerCase().includes(word)));
    const shown = fits.slice(0, MOST_PARTS);
    fill(this.parts, CLASSES.map(([name, heading]) => {
      const own = shown.filter((part) => part.class === name);
      return own.length > 0 && el("optgroup", { label: heading }, own.map((part) => el("option", { value: part.object }, part.label)));
    }));
    this.parts.value = chosen;
    fill(this.said, fits.length > shown.length ? `${fits.length - shown.length} more: find them by name` : "");
  }

  async choosePart() {
    this.wanted = undefined;
    await this.guard(async () => {
      const series = await this.loadSeries();
      const quantities = series.map((one) => one.quantity);
      const main = MAIN.find((name) => quantities.includes(name)) || quantities[0];
      const first = series.filter((one) => one.quantity === main).map((one) => one.id);
      const kept = this.keep.checked ? this.ids : [];
      const all = [...new Set([...kept, ...first])].slice(0, 8);
      if (all.length) this.change({ series: all });
    });
  }

  async loadSeries() {
    const [device, object] = [this.device.value, this.parts.value];
    const { series } = await ask("/api/series", { device, object });
    if (object !== this.parts.value) return [];
    const { texts } = await ask("/api/texts", { device, object });
    const quantities = [...new Set(series.map((one) => one.quantity))];
    const box = (one, name) => el("label", { class: "check" },
      el("input", { type: "checkbox", value: one.id, "aria-label": `${name} ${one.quantity}`, checked: this.ids.includes(one.id), change: (event) => this.toggle(event, one.id) }), ` ${name}`);
    const row = (quantity) => {
      const own = series.filter((one) => one.quantity === quantity);
      const places = [["in", "in"], ["out", "out"], [null, "level"]];
      const boxes = places.map(([way, name]) => own.filter((one) => one.direction === way).map((one) => box(one, name)));
      return el("tr", {}, el("th", { scope: "row" }, quantity), el("td", {}, boxes.flat()));
    };
    const words = texts.map((text) => el("div", {}, el("dt", {}, text.key), el("dd", {}, text.text, text.key === "state" && el("small", {}, ` for ${span((Date.now() - text.since_ns / 1e6) / 1000)}`))));
    fill(this.series, el("legend", {}, "Series"), el("table", {}, el("tbody", {}, quantities.map(row))), words.length > 0 && el("dl", {}, words));
    this.series.hidden = series.length === 0;
    return series;
  }

  toggle(event, id) {
    const rest = this.ids.filter((other) => other !== id);
    if (event.target.checked && rest.length >= 8) {
      event.target.checked = false;
      fill(this.said, "Eight series are the most.");
      return;
    }
    this.change({ series: event.target.checked ? [...rest, id] : rest });
  }
}
