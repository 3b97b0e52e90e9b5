// Formatting of values, units and times, and descriptions of events.

const TIMES = { s: 1, ms: 1e-3, us: 1e-6, "µs": 1e-6, ns: 1e-9, seconds: 1, milliseconds: 1e-3, microseconds: 1e-6, nanoseconds: 1e-9 };
const BITS = ["b/s", "bit/s", "bits/s", "bps"];

/** Bits of an ATM cell (ITU-T I.361). */
const CELL = 424;

/** Returns the display unit of a series and the factor to it. Series with the same unit share a plot. `bits`: show cells as bits. */
export function displayUnit(series, bits = false) {
  if (series.kind.startsWith("counter")) {
    if (bits && series.unit === "cells") return { unit: "b/s", factor: CELL };
    return series.unit === "octets" ? { unit: "b/s", factor: 8 } : { unit: `${series.unit || "units"}/s`, factor: 1 };
  }
  if (series.unit in TIMES) return { unit: "s", factor: TIMES[series.unit] };
  if (BITS.includes(series.unit)) return { unit: "b/s", factor: 1 };
  return { unit: series.unit, factor: 1 };
}

/** Formats a value with a unit prefix, and times from a minute on as durations. `like`: the value that selects the prefix. */
export function formatValue(value, unit, n, like = value) {
  return unit === "s" && Math.abs(like) >= 60 && Number.isFinite(value) ? formatDuration(value) : globalThis.formatValue(value, unit, n, like ?? 0);
}

/** Formats a counted amount; octets as bytes. */
export function formatAmount(value, unit) {
  if (value === null || value === undefined) return "–";
  return formatValue(value, unit === "octets" ? "B" : unit, 4);
}

/** Formats seconds: `3 d 4 h`. */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const parts = [[Math.floor(whole / 86400), "d"], [Math.floor(whole / 3600) % 24, "h"], [Math.floor(whole / 60) % 60, "min"], [whole % 60, "s"]];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0\u202fs";
  return parts.slice(first, first + 2).filter(([count]) => count > 0).map(([count, name]) => `${count}\u202f${name}`).join(" ");
}

const two = (number) => String(number).padStart(2, "0");

/** Formats milliseconds since 1970 in the local time zone: `2026-11-22 13:05:09`. */
export function formatTime(ms) {
  if (ms === null || ms === undefined) return "–";
  const d = new Date(ms);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${formatClock(ms)}`;
}

/** Formats the time of day. */
export function formatClock(ms) {
  const d = new Date(ms);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** Converts nanoseconds of the JSON interface to milliseconds. */
export const millis = (ns) => (ns === null || ns === undefined ? null : ns / 1e6);
/** Converts milliseconds to nanoseconds as text: doubles do not have enough digits. */
export const nanos = (ms) => `${Math.round(ms)}000000`;

/** Meaning and importance of events: `bad` for missing data, `note` for information, `quiet` for details of polling. */
export const EVENTS = {
  wrap: ["a 32-bit counter wrapped; its growth is counted", "note"],
  ambiguous: ["the counter may have wrapped several times; not counted", "bad"],
  restart: ["the agent restarted; its counters continued", "note"],
  "reset-restart": ["the agent and its counters restarted", "bad"],
  discontinuity: ["the agent reports a reset of the counter", "bad"],
  "reset-unsaid": ["the counter decreased and the agent reports no reset", "bad"],
  silent: ["no answer", "bad"],
  absent: ["the answer lacked the object", "bad"],
  stale: ["an answer from the agent's cache", "quiet"],
  late: ["polled later than due", "quiet"],
  missed: ["polls were skipped", "note"],
};

/** Returns the display name of a series: `core1 eth0 in octets`. */
export function seriesTitle(series) {
  const label = series.object.split("/").slice(1).map(decode);
  const part = series.object.startsWith("vc/") ? `${label[0]} VC ${label[1]}`
    : series.object.startsWith("vp/") ? `${label[0]} VP ${label[1]}` : label.join("/") || decode(series.object);
  return [series.device, part, series.direction, series.quantity].filter(Boolean).join(" ");
}

/** Decodes a percent-encoded part of a name. */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
