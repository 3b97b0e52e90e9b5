// Selection of what to plot: a device, an object, and its series.
import { request, el, fill } from "./common.js";
import { formatDuration } from "./format.js";

const CLASSES = [["port", "Ports"], ["path", "Virtual paths"], ["channel", "Virtual channels"], ["host", "Host"], ["flow", "Flows"], ["connection", "Connections"], ["agent", "Agent"], ["other", "Others"]];
/** Quantities that are selected first, in order of preference. */
const PREFERRED = ["octets", "cells", "delay", "packets", "unicast-packets", "value"];
const MAX_OBJECTS = 2000;

const collate = new Intl.Collator("en", { numeric: true });

export class Chooser {
  /** `change` receives the selected series. */
  constructor(change) {
    this.change = change;
    this.ids = [];
    this.device = el("select", { id: "device", change: () => this.chooseDevice() });
    this.find = el("input", { id: "find", type: "search", placeholder: "e.g. eth0", autocomplete: "off", input: () => this.listObjects() });
    this.parts = el("select", { id: "part", size: "10", change: () => this.chooseObject() });
    this.keep = el("input", { id: "keep", type: "checkbox" });
    this.series = el("fieldset", { id: "series", hidden: true });
    this.message = el("p", { class: "hint", role: "status" });
    this.element = el("section", { class: "chooser", "aria-label": "What to plot" },
      el("label", { for: "device" }, "Device"), this.device,
      el("label", { for: "find" }, "Find an object"), this.find,
      el("label", { for: "part" }, "Port, path, channel, flow …"), this.parts,
      el("label", { class: "check" }, this.keep, " Add to the plot"),
      this.series, this.message);
    this.loadDevices();
  }

  async loadDevices() {
    await this.guard(async () => {
      const { devices } = await request("/api/devices");
      devices.sort(collate.compare);
      fill(this.device, el("option", { value: "" }, devices.length ? "choose …" : "no devices yet"), devices.map((name) => el("option", { value: name }, name)));
      if (this.selection === undefined && devices.length === 1) this.selection = { device: devices[0], object: "" };
      await this.applySelection();
    });
  }

  async guard(action) {
    try {
      fill(this.message);
      await action();
    } catch (error) {
      fill(this.message, error.message);
    }
  }

  /** Selects the plotted series. */
  plotted(ids, known) {
    this.ids = ids;
    const first = known.get(ids[0]);
    const object = first && this.device.value === first.device && ids.some((id) => known.get(id).object === this.parts.value) ? this.parts.value : first?.object;
    if (first) this.selection = { device: first.device, object };
    for (const box of this.series.querySelectorAll("input")) box.checked = ids.includes(Number(box.value));
    this.guard(() => this.applySelection());
  }

  async applySelection() {
    if (!this.selection || this.device.options.length === 0) return;
    const { device, object } = this.selection;
    if (this.device.value !== device || !this.objects) {
      this.device.value = device;
      await this.loadObjects();
    }
    if (object && this.parts.value !== object) {
      this.parts.value = object;
      await this.loadSeries();
    }
  }

  async chooseDevice() {
    this.selection = undefined;
    await this.guard(() => this.loadObjects());
  }

  async loadObjects() {
    const device = this.device.value;
    this.objects = [];
    this.series.hidden = true;
    const { objects, more } = device ? await request("/api/objects", { device }) : { objects: [] };
    if (device !== this.device.value) return;
    this.objects = objects.sort((a, b) => collate.compare(a.label, b.label));
    this.listObjects();
    if (more) fill(this.message, "The list is truncated.");
  }

  listObjects() {
    const terms = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = this.parts.value;
    const matches = (this.objects || []).filter(({ label }) => terms.every((word) => label.toLowerCase().includes(word)));
    const shown = matches.slice(0, MAX_OBJECTS);
    fill(this.parts, CLASSES.map(([name, heading]) => {
      const own = shown.filter((part) => part.class === name);
      return own.length > 0 && el("optgroup", { label: heading }, own.map((part) => el("option", { value: part.object }, part.label)));
    }));
    this.parts.value = chosen;
    fill(this.message, matches.length > shown.length ? `${matches.length - shown.length} more: find them by name` : "");
  }

  async chooseObject() {
    this.selection = undefined;
    await this.guard(async () => {
      const series = await this.loadSeries();
      const quantities = series.map((one) => one.quantity);
      const main = PREFERRED.find((name) => quantities.includes(name)) || quantities[0];
      const first = series.filter((one) => one.quantity === main).map((one) => one.id);
      const present = this.keep.checked ? this.ids : [];
      const all = [...new Set([...present, ...first])].slice(0, 8);
      if (all.length) this.change({ series: all });
    });
  }

  async loadSeries() {
    const [device, object] = [this.device.value, this.parts.value];
    const { series } = await request("/api/series", { device, object });
    if (object !== this.parts.value) return [];
    const { texts } = await request("/api/texts", { device, object });
    const quantities = [...new Set(series.map((one) => one.quantity))];
    const box = (one, name) => el("label", { class: "check" },
      el("input", { type: "checkbox", value: one.id, "aria-label": `${name} ${one.quantity}`, checked: this.ids.includes(one.id), change: (event) => this.toggle(event, one.id) }), ` ${name}`);
    const row = (quantity) => {
      const own = series.filter((one) => one.quantity === quantity);
      const places = [["in", "in"], ["out", "out"], [null, "level"]];
      const boxes = places.map(([direction, name]) => own.filter((one) => one.direction === direction).map((one) => box(one, name)));
      return el("tr", {}, el("th", { scope: "row" }, quantity), el("td", {}, boxes.flat()));
    };
    const terms = texts.map((text) => el("div", {}, el("dt", {}, text.key), el("dd", {}, text.text, text.key === "state" && el("small", {}, ` for ${formatDuration((Date.now() - text.since_ns / 1e6) / 1000)}`))));
    fill(this.series, el("legend", {}, "Series"), el("table", {}, el("tbody", {}, quantities.map(row))), terms.length > 0 && el("dl", {}, terms));
    this.series.hidden = series.length === 0;
    return series;
  }

  toggle(event, id) {
    const rest = this.ids.filter((other) => other !== id);
    if (event.target.checked && rest.length >= 8) {
      event.target.checked = false;
      fill(this.message, "At most eight series can be plotted.");
      return;
    }
    this.change({ series: event.target.checked ? [...rest, id] : rest });
  }
}
