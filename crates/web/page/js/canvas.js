// Draws a plot: lines, bands, gaps and events of one unit on a canvas; cursor and selection on a second canvas above it.
import { EVENTS, formatClock, formatValue, formatTime } from "./format.js";

const LEFT = 78;
const RIGHT = 14;
const TOP = 22;
const BOTTOM = 26;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns about `count` ticks at 1, 2 or 5 times a power of ten. */
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((s) => s >= rough * 0.999) || rough;
  const all = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high + step * 1e-6; mark += step) all.push(Math.abs(mark) < step * 1e-6 ? 0 : mark);
  return all;
}

const STEPS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000];

/** Returns the ticks of a time axis at round local times, in milliseconds. */
export function times(from, to, count) {
  const rough = (to - from) / count / 1000;
  const step = (STEPS.find((s) => s >= rough) || rough) * 1000;
  const zone = new Date(from).getTimezoneOffset() * 60000;
  const all = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) all.push(at);
  return { all, step };
}

function timeLabel(at, step) {
  const full = formatTime(at);
  if (step >= 86400000) return full.slice(5, 10);
  if (step >= 60000) return formatClock(at) === "00:00:00" ? full.slice(5, 10) : formatClock(at).slice(0, 5);
  return step >= 1000 ? formatClock(at) : `${formatClock(at)}.${String(Math.floor(at % 1000)).padStart(3, "0")}`;
}

/** The colour of a line. */
export const colour = (line) => css(`--c${line.colour % 8}`);

/** One plot: lines of one unit over a time in buckets. */
export class Panel {
  constructor(unit) {
    this.unit = unit;
    this.element = document.createElement("div");
    this.element.className = "panel";
    this.base = document.createElement("canvas");
    this.over = document.createElement("canvas");
    this.over.className = "over";
    for (const canvas of [this.base, this.over]) canvas.setAttribute("aria-hidden", "true");
    this.element.append(this.base, this.over);
  }

  /** Convert a time to pixels, pixels to a time, and a value to pixels. */
  x(at) { return LEFT + ((at - this.view.from) / (this.view.to - this.view.from)) * (this.width - LEFT - RIGHT); }
  at(x) { return this.view.from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (this.view.to - this.view.from); }
  y(value) { return this.height - BOTTOM - ((value - this.low) / (this.high - this.low)) * (this.height - TOP - BOTTOM); }

  draw(view, lines, events, height) {
    Object.assign(this, { view, lines, height, width: Math.max(this.element.clientWidth, 240) });
    this.element.style.height = `${height}px`;
    const pen = this.pen(this.base);
    this.scale();
    this.axes(pen);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP - 4, this.width - LEFT - RIGHT, height - TOP - BOTTOM + 8);
    pen.clip();
    this.gaps(pen);
    lines.forEach((line) => this.band(pen, line));
    lines.forEach((line) => this.line(pen, line));
    pen.restore();
    this.drawEvents(pen, events);
    this.point(null, null);
  }

  pen(canvas) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(this.height * ratio);
    canvas.style.width = `${this.width}px`;
    canvas.style.height = `${this.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.lineJoin = "round";
    return pen;
  }

  /** Scales the value axis from zero, or below for negative values. Upper bounds do not extend the axis. */
  scale() {
    let [low, high] = [0, 0];
    for (const line of this.lines) {
      for (let i = 0; i < line.mean.length; i += 1) {
        const least = Number.isNaN(line.low[i]) ? line.mean[i] : Math.min(line.mean[i], line.low[i]);
        const most = Number.isNaN(line.high[i]) ? line.mean[i] : Math.max(line.mean[i], line.high[i]);
        if (least < low) low = least;
        if (most > high) high = most;
      }
    }
    if (low === high) high = low + 1;
    this.low = low < 0 ? low - (high - low) * 0.05 : 0;
    this.high = high + (high - low) * 0.06;
  }

  axes(pen) {
    const { width, height } = this;
    pen.strokeStyle = css("--rule");
    pen.fillStyle = css("--quiet");
    pen.lineWidth = 1;
    const values = ticks(this.low, this.high, Math.max(2, Math.floor((height - TOP - BOTTOM) / 48)));
    const like = Math.max(...values.map(Math.abs));
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const value of values) {
      const y = Math.round(this.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(LEFT, y);
      pen.lineTo(width - RIGHT, y);
      pen.stroke();
      pen.fillText(value === 0 ? "0" : formatValue(value, this.unit, 4, like), LEFT - 8, y);
    }
    const { all, step } = times(this.view.from, this.view.to, Math.max(2, Math.floor((width - LEFT - RIGHT) / 96)));
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const at of all) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, TOP);
      pen.lineTo(x, height - BOTTOM);
      pen.stroke();
      if (x > LEFT + 14 && x < width - RIGHT - 14) pen.fillText(timeLabel(at, step), x, height - BOTTOM + 8);
    }
  }

  /** Returns the ranges of buckets for which `test` holds, as first and last. */
  static ranges(count, test) {
    const all = [];
    for (let i = 0; i < count; i += 1) {
      if (!test(i)) continue;
      const last = all[all.length - 1];
      if (last && last[1] === i - 1) last[1] = i;
      else all.push([i, i]);
    }
    return all;
  }

  middle(bucket) { return this.x(this.view.from + (bucket + 0.5) * this.view.length); }

  /** Shades times without readings, or with growth over a gap only. */
  gaps(pen) {
    const known = (i) => this.lines.some((line) => line.covered[i] && !line.gap.has(i));
    const all = Panel.ranges(this.view.count, known);
    if (!all.length) return;
    const [first, last] = [all[0][0], all[all.length - 1][1]];
    const asked = this.lines.reduce((most, line) => Math.max(most, ...line.gap), last);
    pen.fillStyle = css("--soft");
    for (const [a, b] of Panel.ranges(this.view.count, (i) => i > first && i <= asked && !known(i))) {
      const left = this.x(this.view.from + a * this.view.length);
      const right = this.x(this.view.from + (b + 1) * this.view.length);
      pen.fillRect(left, TOP, Math.max(1, right - left), this.height - TOP - BOTTOM);
    }
  }

  band(pen, line) {
    pen.fillStyle = colour(line);
    for (const [top, alpha] of [[line.most, 0.07], [line.high, 0.16]]) {
      pen.globalAlpha = alpha;
      for (const [a, b] of Panel.ranges(line.mean.length, (i) => !Number.isNaN(line.low[i]))) {
        pen.beginPath();
        const half = a === b ? 1 : 0;
        for (let i = a; i <= b; i += 1) pen.lineTo(this.middle(i) - half, this.y(Number.isFinite(top[i]) ? top[i] : this.high * 2));
        for (let i = b; i >= a; i -= 1) pen.lineTo(this.middle(i) + half, this.y(line.low[i]));
        pen.fill();
      }
    }
    pen.globalAlpha = 1;
  }

  /** Draws the means. Growth over a gap is dashed and thin. */
  line(pen, line) {
    pen.strokeStyle = colour(line);
    pen.fillStyle = colour(line);
    let last = null;
    const begin = (gap) => {
      pen.beginPath();
      pen.lineWidth = gap ? 1 : 1.6;
      pen.setLineDash(gap ? [2, 4] : line.dash ? [6, 4] : []);
      if (last) pen.moveTo(last.x, last.y);
    };
    let gap = false;
    begin(gap);
    for (let i = 0; i < line.mean.length; i += 1) {
      if (Number.isNaN(line.mean[i])) {
        // A covered bucket without a reading is not a gap.
        if (!line.covered[i]) last = null;
        continue;
      }
      const here = { x: this.middle(i), y: this.y(line.mean[i]) };
      if (line.gap.has(i) !== gap) {
        pen.stroke();
        gap = line.gap.has(i);
        begin(gap);
      }
      if (last) pen.lineTo(here.x, here.y);
      else {
        // A dot in case no further point follows.
        pen.fillRect(here.x - 0.8, here.y - 0.8, 1.6, 1.6);
        pen.moveTo(here.x, here.y);
      }
      last = here;
    }
    pen.stroke();
    pen.setLineDash([]);
  }

  /** Draws events as diamonds in the upper margin, with names where they fit. */
  drawEvents(pen, events) {
    let free = 0;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const event of events) {
      const [left, right] = [this.middle(event.first), this.middle(event.last)];
      const [, weight] = EVENTS[event.name] || ["", "note"];
      pen.fillStyle = css({ bad: "--bad", note: "--accent", quiet: "--quiet" }[weight]);
      if (right - left > 6) pen.fillRect(left, 8.5, right - left, 3);
      pen.beginPath();
      pen.moveTo(left, 5);
      pen.lineTo(left + 5, 10);
      pen.lineTo(left, 15);
      pen.lineTo(left - 5, 10);
      pen.fill();
      if (weight === "bad" || weight === "note") {
        pen.globalAlpha = 0.35;
        pen.fillRect(left - 0.5, TOP, 1, this.height - TOP - BOTTOM);
        pen.globalAlpha = 1;
      }
      const text = event.name;
      const wide = pen.measureText(text).width;
      const begin = Math.max(left, right - left > 6 ? right : left) + 8;
      if (left - 6 >= free && begin + wide < this.width) {
        pen.fillText(text, begin, 10);
        free = begin + wide + 6;
      }
    }
  }

  /** Draws the cursor at a bucket, and a selection between two times. */
  point(bucket, selection) {
    const pen = this.pen(this.over);
    if (selection) {
      const [a, b] = selection.map((at) => Math.min(Math.max(this.x(at), LEFT), this.width - RIGHT));
      pen.fillStyle = css("--accent");
      pen.globalAlpha = 0.15;
      pen.fillRect(Math.min(a, b), TOP, Math.abs(b - a), this.height - TOP - BOTTOM);
      pen.globalAlpha = 1;
    }
    if (bucket === null) return;
    const x = Math.round(this.middle(bucket)) + 0.5;
    pen.strokeStyle = css("--quiet");
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, this.height - BOTTOM);
    pen.stroke();
    for (const line of this.lines) {
      if (Number.isNaN(line.mean[bucket])) continue;
      pen.fillStyle = colour(line);
      pen.beginPath();
      pen.arc(x, this.y(line.mean[bucket]), 3.5, 0, 2 * Math.PI);
      pen.fill();
    }
  }
}
