// Data to plot from a view of the server: lines with bounds, differences, ranges of events.
import { displayUnit, seriesTitle } from "./format.js";

/** Returns the lines of a view: each series with its bounds, then the differences of `minus`. `bits`: show cells as bits. */
export function lines(view, { minus, bits }) {
  const all = view.views.map((one, color) => {
    const { unit, factor } = displayUnit(one.series, bits);
    const counts = one.series.kind.startsWith("counter");
    // A bucket's share of a growth is an integer; in short buckets the rounding can exceed the bounds.
    const within = (value, i) => Math.max(one.low[i] ?? value, Math.min(value, one.most[i] ?? value));
    const mean = one.sum.map((sum, i) => {
      const by = counts ? one.covered_ns[i] / 1e9 : one.samples[i];
      return by > 0 ? within(sum / by, i) * factor : NaN;
    });
    const gap = new Set(one.events.filter(({ names }) => names.includes("silent") || names.includes("absent")).map(({ bucket }) => bucket));
    const bound = (all, none) => all.map((value, i) => (value === null ? none(i) : value * factor));
    return {
      id: one.series.id, name: seriesTitle(one.series), series: one.series, color, unit, mean, gap,
      covered: one.covered_ns.map((ns, i) => ns > 0 || one.samples[i] > 0),
      low: bound(one.low, () => NaN),
      high: bound(one.high, () => NaN),
      most: bound(one.most, (i) => (one.high[i] === null ? NaN : Infinity)),
      sum: one.sum.reduce((a, b) => a + b, 0),
      time: one.covered_ns.reduce((a, b) => a + b, 0) / 1e9,
      samples: one.samples.reduce((a, b) => a + b, 0),
      counts, factor, damaged: one.damaged,
    };
  });
  const differences = minus.map(([a, b]) => [a, b].map((id) => all.find((line) => line.id === id)))
    .filter(([a, b]) => a && b && a.unit === b.unit && a.counts === b.counts);
  return all.concat(differences.map(([a, b], i) => difference(a, b, all.length + i)));
}

/** Returns the difference of two series with bounds, bucket by bucket. */
function difference(a, b, at) {
  const by = (of) => a.mean.map((_, i) => of(i));
  return {
    name: `${a.name} − ${b.name}`, color: at, dash: true, pair: [a.id, b.id], unit: a.unit, counts: a.counts, factor: a.factor, damaged: [],
    series: a.series,
    gap: new Set([...a.gap, ...b.gap]),
    mean: by((i) => a.mean[i] - b.mean[i]),
    covered: by((i) => a.covered[i] && b.covered[i]),
    low: by((i) => a.low[i] - b.high[i]),
    high: by((i) => a.high[i] - b.low[i]),
    most: by((i) => a.high[i] - b.low[i]),
    sum: a.sum - b.sum, time: Math.min(a.time, b.time), samples: Math.min(a.samples, b.samples),
  };
}

/** Returns the events as ranges of buckets: all polls of an outage are one range. */
export function events(view) {
  const all = new Map();
  for (const { series, events } of view.views) {
    for (const { bucket, names } of events) {
      for (const name of names) {
        const key = `${name} ${series.device}`;
        if (!all.has(key)) all.set(key, { name, device: series.device, period: series.period_ns / 1e6, buckets: new Map() });
        const { buckets } = all.get(key);
        buckets.set(bucket, (buckets.get(bucket) || new Set()).add(series.id));
      }
    }
  }
  const ranges = [];
  for (const { name, device, period, buckets } of all.values()) {
    const near = Math.max(1, Math.ceil((2.5 * period) / view.length));
    let open = null;
    for (const bucket of [...buckets.keys()].sort((a, b) => a - b)) {
      if (!open || bucket - open.last > near) ranges.push((open = { name, device, first: bucket, last: bucket, count: 0, series: new Set() }));
      open.last = bucket;
      open.count += 1;
      buckets.get(bucket).forEach((id) => open.series.add(id));
    }
  }
  return ranges.sort((a, b) => a.first - b.first || a.name.localeCompare(b.name));
}
