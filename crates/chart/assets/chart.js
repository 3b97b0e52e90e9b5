// Plots of Trunkline's pages, drawn by uPlot.

const LARGE_PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const SMALL_PREFIXES = [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]];
/** Units of axes: the unit shown and the factor to it. Other units are shown as they are. */
const AXIS_UNITS = { bps: ["b/s", 1], us: ["s", 1e-6], bytes: ["B", 1], share: ["%", 100] };

const digits = (value, n) => String(Number(value.toPrecision(n))).replace("-", "−");

/** Formats a value with a unit prefix: `12.3 Mb/s`. `like`: the value that selects the prefix. */
function formatValue(value, unit, n = 3, like = value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return "∞";
  const size = Math.abs(like);
  const scales = unit === "s" ? SMALL_PREFIXES : LARGE_PREFIXES;
  const [scale, prefix] = size === 0 ? [1, ""] : scales.find(([s]) => size >= s * 0.9995) || scales[scales.length - 1];
  const shown = digits(value / scale, Math.max(n, Math.ceil(Math.log10(Math.abs(value / scale) + 1))));
  if (!unit && !prefix) return shown;
  // A space in `k cells/s`, none in `kb/s`.
  const gap = prefix && unit.length > 3 ? "\u202f" : "";
  return `${shown}\u202f${prefix}${gap}${unit}`;
}

/** Plots in an element. It is drawn again with other data, another size or other colours. */
const Chart = (() => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (line) => css(`--c${line.color % 8}`);
  const tint = (line, percent) => `color-mix(in srgb, ${colour(line)} ${percent}%, transparent)`;

  function show(unit, value, n = 4, like = value) {
    if (value === null || value === undefined) return "";
    // An axis of nines has -log₁₀ of the share above.
    if (unit === "nines") return `${digits(100 * (1 - 10 ** -value), Math.max(3, Math.ceil(value) + 1))}\u202f%`;
    const [name, factor] = AXIS_UNITS[unit] || [unit, 1];
    return value === 0 && name !== "%" ? "0" : formatValue(value * factor, name, n, like * factor);
  }

  // Ticks of an axis of nines: 50 %, 90 %, 99 %, …, and between them only when zoomed in.
  function nines(_, __, min, max) {
    const marks = [0.5];
    const fine = max - min < 2;
    for (let tail = 0.1; tail > 1e-10; tail /= 10) {
      marks.push(1 - tail);
      if (fine) marks.push(1 - tail / 2, 1 - tail / 4);
    }
    if (fine) marks.push(0, 0.25, 0.75, 0.8);
    return marks.map((q) => -Math.log10(1 - q)).filter((x) => x >= min && x <= max).sort((a, b) => a - b);
  }

  // A logarithmic axis labels each power of ten; if it has few of them, also their double and fivefold.
  function named(_, marks) {
    if (marks.length <= 2) return marks;
    const few = marks[marks.length - 1] / marks[0] <= 100;
    const mantissa = (v) => Math.round(v / 10 ** Math.floor(Math.log10(v) + 1e-9));
    return marks.map((v) => (mantissa(v) === 1 || (few && [2, 5].includes(mantissa(v))) ? v : null));
  }

  // Ticks of a logarithmic axis that does not begin or end at a power of ten.
  function powers(_, __, min, max) {
    const marks = [];
    for (let power = 10 ** Math.floor(Math.log10(min)); power <= max; power *= 10) {
      for (let times = 1; times < 10; times += 1) marks.push(times * power);
    }
    const shown = marks.filter((v) => v >= min && v <= max);
    return shown.length > 1 ? shown : [min, max];
  }

  function timeLabel(ms, step) {
    const d = new Date(ms);
    const two = (number) => String(number).padStart(2, "0");
    const clock = [d.getHours(), d.getMinutes(), d.getSeconds()].map(two).join(":");
    if (step >= 86400000 || (step >= 60000 && clock === "00:00:00")) return `${two(d.getMonth() + 1)}-${two(d.getDate())}`;
    if (step >= 60000) return clock.slice(0, 5);
    return step >= 1000 ? clock : `${clock}.${String(d.getMilliseconds()).padStart(3, "0")}`;
  }

  function axis(spec, side, marked) {
    const common = {
      stroke: () => css("--quiet"),
      grid: { stroke: () => css("--rule"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      label: spec.label,
      labelSize: spec.label ? 16 : 0,
      labelGap: 0,
      filter: spec.log ? named : undefined,
      values: (_, marks) => {
        const largest = Math.max(...marks.map(Math.abs));
        return marks.map((v) => (v === null ? null : show(spec.unit, v, 5, spec.log ? v : largest)));
      },
    };
    if (side === "y") return { ...common, size: 78 };
    const x = { ...common, size: 28, gap: 6, space: 70 };
    if (spec.time) return { ...x, values: (_, marks, __, ___, step) => marks.map((at) => timeLabel(at, step)) };
    if (spec.words?.length) {
      return { ...x, space: 1, splits: () => spec.words.map((_, i) => i), values: (_, marks) => marks.map((i) => spec.words[i]) };
    }
    if (spec.log && marked) return { ...x, splits: powers };
    return spec.unit === "nines" ? { ...x, splits: nines } : x;
  }

  // The series for uPlot: every line, followed by the upper and lower edge of each of its bands.
  const columns = (plot) => plot.lines.flatMap((line) => [
    { line, y: line.y },
    ...(line.bands || []).flatMap((band) => [{ line, band, edge: "high", y: band.high }, { line, band, edge: "low", y: band.low }]),
  ]);

  // Points between two gaps, which no line shows. Undefined values are no gaps.
  function isolated(u, series) {
    const y = u.data[series];
    const at = y.flatMap((value, i) => (value === undefined ? [] : [i]));
    const missing = (i) => (y[i] ?? null) === null;
    return at.filter((i, n) => !missing(i) && missing(at[n - 1]) && missing(at[n + 1]));
  }

  function points(line) {
    if (!line.marked && !line.gaps) return { show: false };
    return { show: true, size: line.marked ? 5 : 3, fill: () => colour(line), filter: line.marked ? undefined : isolated };
  }

  function seriesOptions({ line, band, edge }, plot) {
    if (edge) return { label: edge, class: "u-edge", width: 0, auto: !band.overflows, points: { show: false } };
    return {
      label: line.label,
      stroke: () => colour(line),
      fill: line.fill ? () => tint(line, 12) : undefined,
      width: line.thin ? 1 : 1.6,
      dash: line.thin ? [2, 4] : line.dash ? [6, 4] : undefined,
      spanGaps: !line.gaps,
      points: points(line),
      value: (_, v) => show(plot.y.unit, v),
    };
  }

  function scales(plot, marked) {
    // Marked points and words need space at the edges.
    const edge = (min, max) => (plot.x.words?.length ? 0.4 : marked ? (max - min) * 0.02 : 0);
    const linear = { range: (_, min, max) => (min === max ? [min - 1, max + 1] : [min - edge(min, max), max + edge(min, max)]) };
    const log = { distr: 3, log: 10 };
    // uPlot's own logarithmic range is whole decades.
    const near = { ...log, range: (_, min, max) => [min / 1.1, max * 1.1] };
    // From zero, unless the user has zoomed in.
    const zero = { range: (u, min, max) => (u.zoomed ? [min, max] : [min < 0 ? min * 1.06 : 0, max > 0 ? max * 1.06 : 1]) };
    const whole = { range: (u, min, max) => (u.zoomed ? [min, max] : [0, 1.03]) };
    // uPlot's ticks are a millisecond early if the range begins within one.
    const x = plot.x.range ? { range: plot.x.range.map(Math.round) } : !plot.x.log ? linear : marked ? near : log;
    return { x: { time: Boolean(plot.x.time), ...x }, y: plot.y.log ? log : plot.y.unit === "share" && !marked ? whole : zero };
  }

  return class Chart {
    /**
     * `on.zoom(from, to)` and `on.reset()` replace the zoom within the data; `on.move(index)` receives the cursor, which
     * is null outside; `on.say(text)` announces to screen readers.
     */
    constructor(element, on = {}) {
      Object.assign(this, { element, on, mark: null });
    }

    /**
     * Draws a plot: `x` and `y` with `label`, `unit`, `log`; `x` also with `words`, `time` (milliseconds) and `range`.
     * `lines` with `label`, `color` (number), `x`, `y`, `bands` of `low` and `high`, and how they look: `dash`, `thin`,
     * `fill`, `marked`, `gaps` (null interrupts the line). `below` and `above` draw on the canvas, before and after lines.
     */
    draw(plot) {
      const height = plot.height || 250;
      // Without it the page may lose its scroll bar meanwhile, and the width changes.
      this.element.style.minHeight = `${height}px`;
      this.destroy();
      const marked = plot.lines.some((line) => line.marked);
      const all = columns(plot);
      const swatch = ({ line }) => (line.dash
        ? `repeating-linear-gradient(90deg, ${colour(line)} 0 4px, transparent 4px 6px)` : colour(line));
      const on = (hook) => (hook ? [(u) => hook(u, this)] : []);
      const x = plot.x.words?.length ? (v) => plot.x.words[v] || "" : (v) => show(plot.x.unit, v);
      const options = {
        width: Math.max(this.element.clientWidth, 240),
        height,
        ms: 1,
        padding: [plot.top || 8, 22, 0, 0],
        cursor: {
          show: plot.cursor !== false,
          y: !this.on.zoom,
          drag: { x: true, y: !this.on.zoom, uni: 30, setScale: !this.on.zoom },
          points: { size: 6 },
        },
        scales: scales(plot, marked),
        legend: { show: !this.on.zoom && plot.cursor !== false, markers: { width: 0, fill: (_, i) => (i > 0 ? swatch(all[i - 1]) : "none") } },
        bands: all.flatMap(({ line, band, edge }, i) => (edge === "high" ? [{ series: [i + 1, i + 2], fill: () => tint(line, band.percent || 18) }] : [])),
        hooks: {
          init: [(u) => u.over.addEventListener("dblclick", () => { u.zoomed = false; this.on.reset?.(); }, true)],
          drawAxes: on(plot.below),
          draw: on(plot.above),
          setCursor: [() => this.u && this.on.move?.(this.cursor)],
          setSelect: [(u) => this.selected(u)],
          // A band is shown and hidden with its line.
          setSeries: [(u, i, { show: shown }) => {
            if (shown === undefined || i === null || all[i - 1]?.edge) return;
            for (let at = i; all[at]?.edge; at += 1) u.setSeries(at + 1, { show: shown });
          }],
        },
        axes: [axis(plot.x, "x", marked), axis(plot.y, "y", marked)],
        series: [{ label: plot.x.label, value: (_, v) => (v === null ? "" : x(v)) }, ...all.map((column) => seriesOptions(column, plot))],
      };
      this.u = new uPlot(options, uPlot.join(all.map(({ line, y }) => [line.x, y])), this.element);
    }

    destroy() {
      this.u?.destroy();
      this.u = null;
    }

    resize() {
      if (this.u && this.u.width !== this.element.clientWidth) this.u.setSize({ width: this.element.clientWidth, height: this.u.height });
    }

    /** The index of the data at the cursor, or null. */
    get cursor() { return this.u.cursor.left < 0 ? null : this.u.cursor.idx; }

    /** Whether the user is selecting a range. */
    get isDragged() { return this.mark === null && this.u.select.width > 0; }

    selected(u) {
      const { left, width, height } = u.select;
      u.zoomed = height > 0 && height < u.over.clientHeight;
      if (this.mark !== null || !this.on.zoom || width === 0) return;
      u.setSelect({ width: 0, height: 0 }, false);
      if (width > 4) this.on.zoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
    }

    /** Places the cursor at an index of the data; null hides it. `fire`: also calls `on.move`. */
    place(index, fire = false) {
      const { u } = this;
      const left = index === null ? -10 : u.valToPos(u.data[0][index], "x");
      u.setCursor({ left, top: index === null ? -10 : u.over.clientHeight / 2 }, fire);
      if (this.mark === null || index === null) return;
      const begin = u.valToPos(u.data[0][this.mark], "x");
      u.setSelect({ left: Math.min(begin, left), width: Math.abs(left - begin), top: 0, height: u.over.clientHeight }, false);
    }

    unmark() {
      this.mark = null;
      this.u.setSelect({ width: 0, height: 0 }, false);
    }

    /** Shows the part between two shares of the present range: 0 to 1 changes nothing. */
    view(...shares) {
      const { u } = this;
      this.mark = null;
      const [from, to] = shares.map((share) => u.posToVal(share * u.over.clientWidth, "x"));
      if (this.on.zoom) this.on.zoom(from, to);
      else if (from < to) u.setScale("x", { min: from, max: to });
    }

    /** Zooms around the cursor, or the middle. */
    zoom(by) {
      const { left } = this.u.cursor;
      const center = left >= 0 ? left / this.u.over.clientWidth : 0.5;
      this.view(center - center * by, center + (1 - center) * by);
    }

    pan(by) {
      this.view(by, 1 + by);
    }

    /** Zooms to the range between the mark and the cursor. */
    select() {
      const { left, width } = this.u.select;
      if (this.mark === null || width < 1) return this.zoom(0.5);
      this.unmark();
      return this.view(left / this.u.over.clientWidth, (left + width) / this.u.over.clientWidth);
    }

    reset() {
      this.u.zoomed = false;
      if (this.on.reset) this.on.reset();
      else this.u.setData(this.u.data);
    }

    /** Handles a key. */
    key(event) {
      const { u } = this;
      if (!u || event.ctrlKey || event.metaKey || event.altKey) return;
      const xs = u.data[0];
      const { min, max } = u.scales.x;
      const first = xs.findIndex((x) => x >= min);
      const last = xs.findLastIndex((x) => x <= max);
      const from = this.cursor ?? Math.floor((first + last) / 2);
      const far = event.shiftKey ? 10 : 1;
      const step = (to) => this.place(Math.max(first, Math.min(last, to)), true);
      const actions = {
        ArrowLeft: () => step(from - far),
        ArrowRight: () => step(from + far),
        Home: () => step(first),
        End: () => step(last),
        PageUp: () => this.pan(-0.5),
        PageDown: () => this.pan(0.5),
        "+": () => this.zoom(0.5),
        "=": () => this.zoom(0.5),
        "-": () => this.zoom(2),
        " ": () => { this.mark = from; step(from); this.on.say?.("marked"); },
        Enter: () => this.select(),
        Escape: () => (this.mark === null ? this.reset() : this.unmark()),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    }

    /** The colour of a line. */
    static colour = colour;
    /** The value of a CSS variable. */
    static css = css;
  };
})();
