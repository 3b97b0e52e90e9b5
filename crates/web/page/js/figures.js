// Figures for people: units, times, and what events mean in words.

const LARGE = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const SMALL = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
const TIMES = { s: 1, ms: 1e-3, us: 1e-6, "µs": 1e-6, ns: 1e-9, seconds: 1, milliseconds: 1e-3, microseconds: 1e-6, nanoseconds: 1e-9 };
const BITS = ["b/s", "bit/s", "bits/s", "bps"];

/** Bits of an ATM cell (ITU-T I.361). */
const CELL = 424;

/** How a series is shown: its unit, the factor to it. Series of the same unit share a plot. `bits`: cells as bits. */
export function measure(series, bits = false) {
  if (series.kind.startsWith("counter")) {
    if (bits && series.unit === "cells") return { unit: "b/s", factor: CELL };
    return series.unit === "octets" ? { unit: "b/s", factor: 8 } : { unit: `${series.unit || "units"}/s`, factor: 1 };
  }
  if (series.unit in TIMES) return { unit: "s", factor: TIMES[series.unit] };
  if (BITS.includes(series.unit)) return { unit: "b/s", factor: 1 };
  return { unit: series.unit, factor: 1 };
}

const digits = (value, n) => String(Number(value.toPrecision(n))).replace("-", "−");

/** A figure with a prefix: `12.3 Mb/s`. `like`: whose prefix it takes. */
export function figure(value, unit, n = 3, like = value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  const size = Math.abs(like);
  if (unit === "s" && size >= 60) return span(value);
  const scales = unit === "s" ? SMALL : LARGE;
  const [scale, prefix] = (size > 0 && scales.find(([s]) => size >= s * 0.9995)) || scales[unit === "s" || size === 0 ? 0 : scales.length - 1];
  const shown = digits(value / scale, Math.max(n, Math.ceil(Math.log10(Math.abs(value / scale) + 1))));
  if (!unit && !prefix) return shown;
  // `k cells/s` wants room, `kb/s` none.
  const gap = prefix && unit.length > 3 ? "\u202f" : "";
  return `${shown}\u202f${prefix}${gap}${unit}`;
}

/** How much was counted: octets as bytes. */
export function amount(value, unit) {
  if (value === null || value === undefined) return "–";
  return figure(value, unit === "octets" ? "B" : unit, 4);
}

/** A span of seconds: `3 d 4 h`. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0\u202fs";
  return parts.slice(first, first + 2).filter(([count]) => count > 0).map(([count, name]) => `${count}\u202f${name}`).join(" ");
}

const two = (number) => String(number).padStart(2, "0");

/** A moment in milliseconds since 1970, in the reader's time zone: `2026-11-22 13:05:09`. */
export function moment(ms) {
  if (ms === null || ms === undefined) return "–";
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(ms)}`;
}

/** Only the time of day. */
export function clock(ms) {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** Nanoseconds of the interface as milliseconds; none stays none. */
export const millis = (ns) => (ns === null || ns === undefined ? null : ns / 1e6);
/** Milliseconds as nanoseconds of the interface, as text: doubles have not enough digits. */
export const nanos = (ms) => `${Math.round(ms)}000000`;

/** What events mean, and how much they matter: `bad` numbers are missing; `note` worth knowing; `quiet` of the polling. */
export const EVENTS = {
  wrap: ["a 32-bit counter passed its end; counted", "note"],
  ambiguous: ["it may have passed its end more often than can be told; not counted", "bad"],
  restart: ["the agent began anew, counters went on", "note"],
  "reset-restart": ["the agent began anew and its counters with it", "bad"],
  discontinuity: ["the agent says that it lost its count", "bad"],
  "reset-unsaid": ["a counter went back and the agent says nothing", "bad"],
  silent: ["no answer came", "bad"],
  absent: ["the answer lacked it", "bad"],
  stale: ["an answer from the agent's cache", "quiet"],
  late: ["asked later than due", "quiet"],
  missed: ["polls were left out", "note"],
};

/** A series' name for people: `core1 eth0 in octets`. */
export function title(series) {
  const label = series.object.split("/").slice(1).map(plain);
  const part = series.object.startsWith("vc/") ? `${label[0]} VC ${label[1]}`
    : series.object.startsWith("vp/") ? `${label[0]} VP ${label[1]}` : label.join("/") || plain(series.object);
  return [series.device, part, series.direction, series.quantity].filter(Boolean).join(" ");
}

/** What an escaped part of a name stands for. */
function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
