// Status pages: hosts, switches and their ports, channels, and routes between hosts.
import { pageUrl, request, el, fill, announce } from "./common.js";
import { formatAmount, formatValue, displayUnit, millis, formatTime, formatDuration } from "./format.js";

const REFRESH_MS = 5000;
const collate = new Intl.Collator("en", { numeric: true });

/** A page that refreshes every few seconds while it is visible. */
export class Status {
  constructor(root, go, heading) {
    this.go = go;
    this.errorBox = el("div", { class: "error", role: "alert", hidden: true });
    this.when = el("p", { class: "shown" });
    this.body = el("div");
    fill(root, el("div", { class: "page" }, el("h1", {}, heading), this.when, this.errorBox, this.body));
    this.timer = setInterval(() => document.hidden || this.refresh(), REFRESH_MS);
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
  }

  show(parameters) {
    this.parameters = parameters;
    return this.refresh();
  }

  async refresh() {
    const turn = (this.turn = (this.turn || 0) + 1);
    try {
      const answer = await this.load();
      if (this.closed || turn !== this.turn) return;
      this.errorBox.hidden = true;
      fill(this.when, answer?.now_ns ? `As of ${formatTime(millis(answer.now_ns))}` : "");
      // Keep the keyboard focus on a link in the table.
      const focus = document.activeElement?.getAttribute?.("href");
      this.draw(answer);
      if (focus && this.body.isConnected && document.activeElement === document.body) {
        [...this.body.querySelectorAll("a")].find((link) => link.getAttribute("href") === focus)?.focus();
      }
    } catch (error) {
      if (this.closed || turn !== this.turn) return;
      fill(this.errorBox, error.message);
      this.errorBox.hidden = false;
    }
  }
}

/** Creates a table. Columns: heading and whether they are numeric. Rows: cells as text or elements. */
export function table(caption, columns, rows, none) {
  if (!rows.length) return el("p", { class: "hint" }, none);
  const cells = (row) => row.map((cell, at) => el(at === 0 ? "th" : "td", { scope: at === 0 && "row", class: columns[at][1] && "number" }, cell));
  return el("div", { class: "scroll" }, el("table", {},
    el("caption", { class: "visually-hidden" }, caption),
    el("thead", {}, el("tr", {}, columns.map(([name, number]) => el("th", { scope: "col", class: number && "number" }, name)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, cells(row))))));
}

/** Returns the reachability of a device; it is unknown if the device is no longer polled. */
function state({ responding, asked_ns, period_ns }, now_ns) {
  if (responding === null || asked_ns === null) return el("span", { class: "quiet" }, "not polled yet");
  if (now_ns - asked_ns > Math.max(60e9, 5 * period_ns)) return el("span", { class: "quiet" }, "no longer polled");
  return responding ? el("span", { class: "good" }, "responding") : el("span", { class: "bad" }, "unreachable");
}

/** Returns the latest rate of a counter, or the value of other kinds. */
function latestValue(series) {
  if (!series) return "–";
  const { unit, factor } = displayUnit(series);
  if (!series.kind.startsWith("counter")) return formatValue(series.value === null ? null : series.value * factor, unit);
  const { growth } = series;
  return growth && growth.length_ns > 0 ? formatValue((growth.by / (growth.length_ns / 1e9)) * factor, unit) : "–";
}

const link = (ids, text) => el("a", { href: pageUrl("plot", { s: ids.join(","), last: "3600" }) }, text);

function plotLink(series) {
  return series ? link([series.id], latestValue(series)) : "–";
}

const find = (object, direction, ...quantities) => object.series.find((one) => one.direction === direction && quantities.includes(one.quantity));
const textOf = (object, key) => object.texts[key]?.text;

/** Hosts: reachability, delay, time of the last answer (table 1 of the 1996 paper). */
export class Hosts extends Status {
  constructor(root, go) { super(root, go, "Hosts"); this.states = new Map(); }

  load() { return request("/api/hosts"); }

  draw({ hosts, now_ns }) {
    hosts.sort((a, b) => collate.compare(a.device, b.device));
    this.changes(hosts);
    const states = new Map(hosts.map((host) => [host, state(host, now_ns)]));
    const up = [...states.values()].filter((one) => one.className === "good").length;
    const rows = hosts.map((host) => {
      const delay = host.delay && displayUnit({ kind: "gauge", unit: host.delay.unit });
      const name = host.ports ? el("a", { href: pageUrl("switches", { device: host.device }) }, host.device) : host.device;
      const delayText = delay && formatValue(host.delay.value * delay.factor, delay.unit);
      return [host.name && host.name !== host.device ? [name, el("small", {}, ` ${host.name}`)] : name, states.get(host),
        delay ? link([host.delay.id], host.responding ? delayText : "–") : "–", formatTime(millis(host.seen_ns)),
        formatDuration(host.uptime_s), host.pinged ? "ping" : "SNMP or other"];
    });
    fill(this.body, hosts.length > 0 && el("p", {}, `${up} of ${hosts.length} respond.`),
      table("Hosts", [["Host"], ["Status"], ["Delay", true], ["Last seen"], ["Up for", true], ["Polled by"]], rows, "No device has been polled yet."));
  }

  changes(hosts) {
    for (const host of hosts) {
      const before = this.states.get(host.device);
      if (before !== undefined && before !== host.responding) announce(`${host.device} is ${host.responding ? "responding" : "unreachable"}`);
      this.states.set(host.device, host.responding);
    }
  }
}

/** Switches, and the ports of one (tables 2a to 2c). */
export class Switches extends Status {
  constructor(root, go) { super(root, go, "Switches"); }

  load() {
    const device = this.parameters.get("device");
    return device ? request("/api/latest", { device }) : request("/api/hosts");
  }

  draw(answer) {
    if (answer.hosts) this.drawAll(answer); else this.drawDevice(answer);
  }

  drawAll({ hosts, now_ns }) {
    const rows = hosts.filter((host) => host.ports > 0).sort((a, b) => collate.compare(a.device, b.device)).map((host) => [
      el("a", { href: pageUrl("switches", { device: host.device }) }, host.device), state(host, now_ns), formatDuration(host.uptime_s),
      `${host.ports}${host.active ? ` (${host.active} active)` : ""}`, String(host.paths),
      host.channels ? el("a", { href: pageUrl("channels", { device: host.device }) }, String(host.channels)) : "0", formatTime(millis(host.seen_ns))]);
    fill(this.body, table("Switches", [["Switch"], ["Status"], ["Up for", true], ["Ports", true], ["VPs", true], ["VCs", true], ["Last seen"]], rows, "No device has ports yet."));
  }

  drawDevice(device) {
    const ports = device.objects.filter((object) => object.class === "port").sort((a, b) => collate.compare(a.label, b.label));
    const on = (kind, port) => device.objects.filter((object) => object.class === kind && object.object.split("/")[1] === port.object.split("/")[1]).length;
    const polled = device.tables.find((one) => one.uptime_s !== null) || device.tables[0];
    const rows = ports.map((port) => {
      const [into, out] = ["in", "out"].map((way) => find(port, way, "octets", "cells"));
      const speed = find(port, null, "speed");
      const state = port.texts.state;
      const both = [into, out].filter(Boolean).map((one) => one.id);
      return [both.length ? link(both, port.label) : port.label, textOf(port, "alias") || textOf(port, "description") || "",
        state ? el("span", { class: state.text === "up" ? "good" : "bad" }, state.text) : "–",
        state ? formatDuration((device.now_ns - state.since_ns) / 1e9) : "–", latestValue(speed), plotLink(into), plotLink(out),
        formatAmount(into?.value, into?.unit), formatAmount(out?.value, out?.unit), String(on("path", port)), String(on("channel", port))];
    });
    const facts = Object.entries(device.texts).filter(([, { text }]) => text)
      .map(([key, { text }]) => el("div", {}, el("dt", {}, key), el("dd", { class: key.startsWith("trouble") && "bad" }, text)));
    fill(this.body, el("p", {}, el("a", { href: "#/switches" }, "All switches")), el("h2", {}, device.device),
      el("p", {}, polled && state(polled, device.now_ns), polled?.uptime_s !== null && ` · up ${formatDuration(polled?.uptime_s)}`, ` · ${ports.length} ports`,
        ` (${ports.filter((port) => textOf(port, "state") === "up").length} up) · last seen ${formatTime(millis(polled?.seen_ns))}`),
      facts.length > 0 && el("dl", { class: "facts" }, facts),
      table("Ports", [["Port"], ["Description"], ["State"], ["For", true], ["Speed", true], ["In", true], ["Out", true], ["Total in", true], ["Total out", true], ["VPs", true], ["VCs", true]], rows, "This device has no ports."));
  }
}

/** Splits the name of a channel into port, VPI and VCI. */
function parts(object) {
  const [, port, numbers] = object.split("/");
  const [vpi, vci = ""] = numbers.split(".");
  let name = port;
  try { name = decodeURIComponent(port); } catch { /* not encoded */ }
  return [name, vpi, vci];
}

/** Virtual paths and channels: incoming, outgoing, cells (table 2d). */
export class Channels extends Status {
  constructor(root, go) { super(root, go, "Channels"); }

  async load() {
    const { hosts } = await request("/api/hosts");
    const switches = hosts.filter((host) => host.channels + host.paths > 0).map((host) => host.device).sort(collate.compare);
    const device = this.parameters.get("device") || switches[0];
    return { devices: switches, device, ...(device ? await request("/api/latest", { device }) : {}) };
  }

  draw({ devices, device, objects = [], now_ns }) {
    if (!device) return fill(this.body, el("p", { class: "hint" }, "No device has virtual channels yet."));
    const choose = el("select", { id: "of", change: (event) => this.go(pageUrl("channels", { device: event.target.value })) },
      [...new Set([...devices, device])].map((name) => el("option", { value: name, selected: name === device }, name)));
    const all = objects.filter((object) => object.class === "channel" || object.class === "path");
    all.sort((a, b) => collate.compare(a.object.replace(/^v[cp]/, ""), b.object.replace(/^v[cp]/, "")));
    const rows = all.map((object) => {
      const [into, out] = ["in", "out"].map((way) => find(object, way, "cells", "octets"));
      const cross = textOf(object, "cross");
      const leaves = cross && /^v[cp]\//.test(cross) ? parts(cross) : ["–", "", ""];
      const [port, vpi, vci] = parts(object.object);
      const both = [into, out].filter(Boolean).map((one) => one.id);
      const state = object.texts.state;
      return [both.length ? link(both, port) : port, vpi, vci, ...leaves, plotLink(into), plotLink(out), formatAmount(into?.value, into?.unit), formatAmount(out?.value, out?.unit),
        state ? `${state.text} ${formatDuration((now_ns - state.since_ns) / 1e9)}` : "–"];
    });
    const focused = document.activeElement?.id === "of";
    fill(this.body, el("p", {}, el("label", { for: "of" }, "Switch "), choose),
      table(`Channels of ${device}`, [["In port"], ["VPI", true], ["VCI", true], ["Out port"], ["VPI", true], ["VCI", true], ["In", true], ["Out", true], ["Cells in", true], ["Cells out", true], ["State"]], rows, "No channels."));
    if (focused) choose.focus();
  }
}

/** Routes between hosts, hop by hop (figure 3). */
export class Path extends Status {
  constructor(root, go) {
    super(root, go, "Path");
    this.names = el("datalist", { id: "names" });
    this.from = el("input", { id: "from", list: "names", required: true, autocomplete: "off" });
    this.to = el("input", { id: "to", list: "names", required: true, autocomplete: "off" });
    const form = el("form", { class: "ask", submit: (event) => { event.preventDefault(); this.go(pageUrl("path", { from: this.from.value, to: this.to.value })); } },
      el("label", { for: "from" }, "From"), this.from, el("label", { for: "to" }, "to"), this.to, el("button", { type: "submit" }, "Find"), this.names);
    this.when.before(form);
    request("/api/devices").then(({ devices }) => fill(this.names, devices.map((name) => el("option", { value: name })))).catch(() => {});
  }

  show(parameters) {
    [this.from.value, this.to.value] = [parameters.get("from") || "", parameters.get("to") || ""];
    return super.show(parameters);
  }

  async load() {
    const [from, to] = [this.parameters.get("from"), this.parameters.get("to")];
    if (!from || !to) return null;
    const path = await request("/api/path", { from, to });
    const devices = [...new Set(path.ways.flatMap((way) => way.hops.map((hop) => hop.device)))].slice(0, 64);
    const latest = await Promise.all(devices.map((device) => request("/api/latest", { device })));
    const objects = new Map(latest.flatMap((one) => one.objects.map((object) => [`${one.device} ${object.object}`, object])));
    return { ...path, objects, now_ns: latest[0]?.now_ns };
  }

  draw(path) {
    if (!path) return fill(this.body, el("p", { class: "hint" }, "Follows the virtual channels between two hosts, switch by switch."));
    const side = (device, name, way) => {
      const object = path.objects.get(`${device} ${name}`);
      const series = object && find(object, way, "cells", "octets");
      const [port, vpi, vci] = parts(name);
      return el("span", { class: "side" }, `${port} · ${vci ? `VC ${vpi}.${vci}` : `VP ${vpi}`} `, series && plotLink(series));
    };
    const hop = ({ device, in: enters, out: leaves }) => el("li", { class: "hop" },
      side(device, enters, "in"), el("a", { href: pageUrl("channels", { device }) }, device), side(device, leaves, "out"));
    const plots = (way) => way.hops.flatMap(({ device, in: enters, out: leaves }) => [[enters, "in"], [leaves, "out"]].map(([name, side]) => {
      const object = path.objects.get(`${device} ${name}`);
      return object && find(object, side, "cells", "octets")?.id;
    })).filter((id) => id !== undefined).slice(0, 8);
    const ways = path.ways.map((way) => {
      const ids = plots(way);
      return el("section", { class: "route" },
        el("ol", {}, el("li", { class: "end" }, path.from), way.hops.map(hop), el("li", { class: way.ends ? "end bad" : "end" }, way.ends || path.to)),
        ids.length > 0 && el("p", {}, link(ids, "Plot all hops")));
    });
    const whole = path.ways.some((way) => !way.ends);
    fill(this.body, el("p", {}, path.ways.length === 0 ? "No channel leads there." : whole ? `${path.ways.length} ${path.ways.length === 1 ? "channel leads" : "channels lead"} there.` : "No channel reaches the destination:"), ways,
      path.more && el("p", { class: "hint" }, "The list is truncated."));
  }
}
