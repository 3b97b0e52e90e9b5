"use strict";
// Draws each plot of the page when it comes into view: uPlot over the data in #plots (see html/plots.rs).
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const drawn = new Map();
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const color = (line) => css("--c" + (line.color % 8));

  const swatch = (line) => (line.dash
    ? `repeating-linear-gradient(90deg, ${color(line)} 0 4px, transparent 4px 6px)` : color(line));

  const SCALES = {
    bps: [[1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"], [1, "b/s"]],
    us: [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]],
    s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]],
    bytes: [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]],
    share: [[0.01, "%"]],
  };
  const digits = (v, n) => String(Number(v.toPrecision(n)));
  // The percentile at a position on the axis of nines.
  const percentile = (x) => digits(100 * (1 - 10 ** -x), Math.max(3, Math.ceil(x) + 1)) + " %";

  // Formats a value with n digits, in the largest unit in which `reference` is at least one.
  function format(unit, v, n = 4, reference = v) {
    if (v == null) return "";
    if (unit === "nines") return percentile(v);
    const scales = SCALES[unit];
    if (!scales) return digits(v, n);
    if (v === 0 && unit !== "share") return "0";
    const [scale, name] = scales.find(([s]) => Math.abs(reference) >= s * 0.9995) || scales[scales.length - 1];
    return digits(v / scale, n) + "\u202f" + name;
  }

  // Ticks of the axis of nines: 50 %, 90 %, 99 %, …, and between them only when zoomed in.
  function ninesTicks(_, __, min, max) {
    const ticks = [0.5];
    const fine = max - min < 2;
    for (let tail = 0.1; tail > 1e-10; tail /= 10) {
      ticks.push(1 - tail);
      if (fine) ticks.push(1 - tail / 2, 1 - tail / 4);
    }
    if (fine) ticks.push(0, 0.25, 0.75, 0.8);
    return ticks.map((q) => -Math.log10(1 - q)).filter((x) => x >= min && x <= max).sort((a, b) => a - b);
  }

  // Labels of a logarithmic axis: at each power of ten and, over at most two decades, also 2× and 5× each.
  function labelledTicks(_, ticks) {
    if (ticks.length <= 2) return ticks;
    const few = ticks[ticks.length - 1] / ticks[0] <= 100;
    const mantissa = (v) => Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9));
    return ticks.map((v) => (mantissa(v) === 1 || (few && [2, 5].includes(mantissa(v))) ? v : null));
  }

  // uPlot plotSeries the ticks of a logarithmic axis relative to its lower end, which must be a power of ten. These
  // ticks are at 1, 2 and 5 for any lower end.
  function logTicks(_, __, min, max) {
    const ticks = [];
    for (let power = 10 ** Math.floor(Math.log10(min)); power <= max; power *= 10) {
      for (const factor of [1, 2, 5]) ticks.push(Number((power * factor).toPrecision(3)));
    }
    const shown = ticks.filter((tick) => tick >= min && tick <= max);
    return shown.length > 1 ? shown : [min, max];
  }

  function axis(spec, side, banded) {
    const common = {
      stroke: () => css("--quiet"),
      grid: { stroke: () => css("--rule"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      label: spec.label,
      labelSize: 16,
      labelGap: 0,
      filter: spec.log ? labelledTicks : undefined,
      values: (_, ticks) => {
        const largest = Math.max(...ticks.map(Math.abs));
        return ticks.map((v) => (v == null ? null : format(spec.unit, v, 5, spec.log ? v : largest)));
      },
    };
    if (side === "y") return { ...common, size: 78 };
    const x = { ...common, size: 28, gap: 6, space: 70 };
    if (spec.categories) {
      const splits = () => spec.categories.map((_, i) => i);
      return { ...x, space: 1, splits, values: (_, ticks) => ticks.map((i) => spec.categories[i]) };
    }
    if (spec.log && banded) return { ...x, splits: logTicks };
    return spec.unit === "nines" ? { ...x, splits: ninesTicks } : x;
  }

  // The series for uPlot: every line, followed by the upper and lower edge of its band.
  const series = (plot) => plot.lines.flatMap((line) => (line.band
    ? [{ line, edge: "", y: line.y }, { line, edge: "high", y: line.band.high }, { line, edge: "low", y: line.band.low }]
    : [{ line, edge: "", y: line.y }]));

  function options(plot, width) {
    // Leave room at the edges for point markers and category labels.
    const banded = plot.lines.some((line) => line.band);
    const margin = (min, max) => (plot.x.categories ? 0.4 : banded ? (max - min) * 0.02 : 0);
    const linear = {
      range: (_, min, max) => (min === max ? [min - 1, max + 1] : [min - margin(min, max), max + margin(min, max)]),
    };
    const log = { distr: 3, log: 10 };
    // From zero, unless the user has zoomed in.
    const floor = (min) => (min < 0 ? min * 1.06 : 0);
    const fromZero = { range: (u, min, max) => (u.zoomed ? [min, max] : [floor(min), max > 0 ? max * 1.06 : 1]) };
    const zeroToOne = { range: (u, min, max) => (u.zoomed ? [min, max] : [0, 1.03]) };
    const y = plot.y.log ? log : plot.y.unit === "share" && !banded ? zeroToOne : fromZero;
    // uPlot extends a logarithmic range to full decades; this one only has a margin.
    const tightLog = { ...log, range: (_, min, max) => [min / 1.1, max * 1.1] };
    const xScale = !plot.x.log ? linear : banded ? tightLog : log;
    const plotSeries = series(plot);
    const formatX = plot.x.categories ? (v) => plot.x.categories[v] || "" : (v) => format(plot.x.unit, v);
    return {
      width,
      height: 250,
      padding: [8, 22, 0, 0],
      cursor: { drag: { x: true, y: true, uni: 30 }, points: { size: 6 } },
      scales: { x: { time: false, ...xScale }, y },
      legend: { markers: { width: 0, fill: (_, i) => (i > 0 ? swatch(plotSeries[i - 1].line) : "none") } },
      bands: plotSeries.flatMap(({ line, edge }, i) => (edge === "high" ? [{
        series: [i + 1, i + 2],
        fill: () => `color-mix(in srgb, ${color(line)} 18%, transparent)`,
      }] : [])),
      hooks: {
        init: [(u) => u.over.addEventListener("dblclick", () => { u.zoomed = false; }, true)],
        setSelect: [(u) => { u.zoomed = u.select.height > 0 && u.select.height < u.over.clientHeight; }],
        // A band is shown and hidden with its line.
        setSeries: [(u, i, { show }) => {
          const banded = show != null && i > 0 && plotSeries[i - 1].edge === "" && plotSeries[i - 1].line.band;
          if (banded) [1, 2].forEach((edge) => u.setSeries(i + edge, { show }));
        }],
      },
      axes: [axis(plot.x, "x", banded), axis(plot.y, "y", banded)],
      series: [
        { label: plot.x.label, value: (_, v) => (v == null ? "" : formatX(v)) },
        ...plotSeries.map(({ line, edge }) => (edge ? {
          label: edge,
          class: "u-edge",
          width: 0,
          points: { show: false },
        } : {
          label: line.label,
          stroke: () => color(line),
          fill: line.fill ? () => `color-mix(in srgb, ${color(line)} 12%, transparent)` : undefined,
          width: 1.6,
          dash: line.dash ? [6, 4] : undefined,
          spanGaps: !line.band,
          points: line.band ? { show: true, size: 5, fill: () => color(line) } : { show: false },
          value: (_, v) => format(plot.y.unit, v),
        })),
      ],
    };
  }

  function draw(element) {
    if (drawn.has(element)) return;
    const plot = plots[element.dataset.plot];
    const data = uPlot.join(series(plot).map(({ line, y }) => [line.x, y]));
    drawn.set(element, new uPlot(options(plot, element.clientWidth), data, element));
  }

  const elements = [...document.querySelectorAll("[data-plot]")];
  const inView = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "600px" });
  elements.forEach((element) => inView.observe(element));

  new ResizeObserver(() => {
    for (const [element, u] of drawn) {
      if (u.width !== element.clientWidth) u.setSize({ width: element.clientWidth, height: 250 });
    }
  }).observe(document.body);

  // Lines, axes and legend get their colours when they are created. Print is always light.
  function redraw() {
    for (const [element, u] of [...drawn]) {
      u.destroy();
      drawn.delete(element);
      draw(element);
    }
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("paper");
    elements.forEach(draw);
    redraw();
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("paper");
    redraw();
  });
})();
