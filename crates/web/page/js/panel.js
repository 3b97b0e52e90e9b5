// What a plot of the series of one unit shows: lines with bounds, gaps and events.
import { EVENTS } from "./format.js";

/** Returns the description of a plot for `Chart`. `lines`: those of one unit. */
export function panelPlot(view, lines, events, { unit, height, cursor }) {
  const x = Array.from({ length: view.count }, (_, i) => view.from + (i + 0.5) * view.length);
  const number = (value) => (Number.isNaN(value) ? null : value);
  // Unbounded rates exceed the plot.
  const limit = 2 * Math.max(1, ...lines.flatMap((line) => [...line.mean, ...line.high].map((value) => value || 0)));
  return {
    x: { time: true, range: [view.from, view.to] }, y: { unit }, height, cursor, top: 22,
    lines: lines.flatMap((line) => {
      // A covered bucket without a reading is not a gap.
      const missing = (i) => (line.covered[i] ? undefined : null);
      const [low, high] = [line.low.map(number), line.high.map(number)];
      const most = line.most.map((value) => number(Math.min(value, limit)));
      const at = line.mean.flatMap((value, i) => (Number.isNaN(value) ? [] : [i]));
      const overGap = line.mean.map((_, i) => missing(i));
      at.forEach((i, n) => { overGap[i] = [i, at[n - 1], at[n + 1]].some((near) => line.gap.has(near)) ? line.mean[i] : null; });
      const common = { x, color: line.color, label: line.name, gaps: true };
      return [
        {
          ...common, dash: line.dash,
          y: line.mean.map((value, i) => (line.gap.has(i) ? null : number(value) ?? missing(i))),
          bands: [{ low, high: most, percent: 7, overflows: true }, { low, high, percent: 16 }],
        },
        // Growth over a gap.
        { ...common, thin: true, y: overGap },
      ];
    }),
    below: (u) => shadeGaps(u, view, lines),
    above: (u) => drawEvents(u, view, events),
  };
}

/** Calls `draw` with a pen whose unit is a CSS pixel, the position of a bucket's share, and the area of the plot. */
function paint(u, view, draw) {
  const ratio = devicePixelRatio;
  const [left, top, width, height] = [u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height].map((length) => length / ratio);
  u.ctx.save();
  u.ctx.scale(ratio, ratio);
  draw(u.ctx, (bucket) => u.valToPos(view.from + bucket * view.length, "x", true) / ratio, { left, top, width, height });
  u.ctx.restore();
}

/** Shades times without readings, or with growth over a gap only. */
function shadeGaps(u, view, lines) {
  const buckets = Array.from({ length: view.count }, (_, i) => i);
  const known = buckets.map((i) => lines.some((line) => line.covered[i] && !line.gap.has(i)));
  const first = known.indexOf(true);
  const last = lines.reduce((most, line) => Math.max(most, ...line.gap), known.lastIndexOf(true));
  if (first < 0) return;
  paint(u, view, (pen, x, { top, height }) => {
    pen.fillStyle = Chart.css("--soft");
    for (let i = first; i <= last; i += 1) {
      const begin = i;
      while (i <= last && !known[i]) i += 1;
      if (i > begin) pen.fillRect(x(begin), top, Math.max(1, x(i) - x(begin)), height);
    }
  });
}

/** Draws events as diamonds in the upper margin, with names where they fit. */
function drawEvents(u, view, events) {
  paint(u, view, (pen, x, area) => {
    let free = 0;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    for (const event of events) {
      const [left, right] = [x(event.first + 0.5), x(event.last + 0.5)];
      const [, weight] = EVENTS[event.name] || ["", "note"];
      pen.fillStyle = Chart.css({ bad: "--bad", note: "--accent", quiet: "--quiet" }[weight]);
      if (right - left > 6) pen.fillRect(left, 8.5, right - left, 3);
      pen.beginPath();
      pen.moveTo(left, 5);
      pen.lineTo(left + 5, 10);
      pen.lineTo(left, 15);
      pen.lineTo(left - 5, 10);
      pen.fill();
      if (weight !== "quiet") {
        pen.globalAlpha = 0.35;
        pen.fillRect(left - 0.5, area.top, 1, area.height);
        pen.globalAlpha = 1;
      }
      const wide = pen.measureText(event.name).width;
      const begin = Math.max(left, right - left > 6 ? right : left) + 8;
      if (left - 6 >= free && begin + wide < u.width) {
        pen.fillText(event.name, begin, 10);
        free = begin + wide + 6;
      }
    }
  });
}
