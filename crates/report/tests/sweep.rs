//! Reports of sweeps: missing values stay missing, and hostile texts are escaped.

use serde_json::Value;
use trunkline_record::schema::{Experiment, Interval};
use trunkline_report::sweep::{Parameter, Point, Seeds, Spread, Sweep, VERSION, csv, html, json, terminal};

fn varied(key: &str, unit: &str, values: &[(&str, Option<f64>)]) -> Parameter {
    Parameter {
        key: key.into(),
        unit: unit.into(),
        log: false,
        values: values.iter().map(|(text, _)| (*text).into()).collect(),
        numbers: values.iter().map(|(_, number)| *number).collect(),
    }
}

/// Returns a sweep of three windows, two loss rates and three seeds; one point has no value.
fn sweep() -> Sweep {
    let window =
        varied("window", "bytes", &[("64 kB", Some(64e3)), ("16 kB", Some(16e3)), ("32 kB", Some(32e3))]);
    let loss = varied("a-s.loss", "", &[("0", Some(0.0)), ("0.01", Some(0.01))]);
    let samples = |w: usize, l: usize| match (w, l) {
        (2, 1) => vec![None, None, None],
        (1, 1) => vec![Some(1e6), None, None],
        _ => (0..3).map(|seed| Some(1e6 * (1 + w + seed) as f64 / (1 + l) as f64)).collect(),
    };
    let point = |w: usize, l: usize| Point {
        indices: vec![w, l],
        values: vec![window.values[w].clone(), loss.values[l].clone()],
        hash: format!("{w}{l}"),
        spreads: vec![Spread::of(samples(w, l))],
    };
    Sweep {
        version: VERSION,
        backend: "sim".into(),
        experiment: Experiment { name: "trunk".into(), hash: "0123456789abcdef".into(), text: "…".into() },
        overrides: vec!["duration=2s".into()],
        seeds: Seeds { first: Some(1996), count: 3 },
        until: None,
        partial: false,
        problems: Vec::new(),
        points: (0..3).flat_map(|w| [point(w, 0), point(w, 1)]).collect(),
        parameters: vec![window, loss],
        metrics: vec!["B-A.received_bps".into()],
    }
}

fn plots(page: &str) -> Vec<Value> {
    let data =
        page.split("id=\"plots\">").nth(1).expect("plots").split("</script>").next().expect("their end");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn a_spread_has_an_interval_from_two_samples_on() {
    let none = Spread::of(vec![None, None]);
    assert_eq!((none.n, none.mean, none.low, none.max), (0, None, None, None));
    let one = Spread::of(vec![None, Some(5.0)]);
    assert_eq!((one.n, one.mean, one.min), (1, Some(5.0), Some(5.0)));
    assert_eq!((one.sd, one.low, one.high), (None, None, None), "one value has no interval");
    let three = Spread::of(vec![Some(9.0), None, Some(10.0), Some(11.0)]);
    let want = Interval::from_samples(&[9.0, 10.0, 11.0]).expect("an interval");
    assert_eq!((three.n, three.mean, three.sd), (3, Some(10.0), Some(1.0)));
    assert_eq!((three.low, three.high), (Some(want.low), Some(want.high)));
    assert_eq!((three.min, three.max), (Some(9.0), Some(11.0)));
}

#[test]
fn the_terminal_shows_every_point() {
    let want = "\
trunk  sim  6 points of window, a-s.loss  seeds 1996 to 1998

B-A.received_bps
window   a-s.loss     mean   95 % from          to        min        max   seeds
──────────────────────────────────────────────────────────────────────────────────
 64 kB          0   2 Mb/s   -484 kb/s   4.48 Mb/s     1 Mb/s     3 Mb/s       3
 64 kB       0.01   1 Mb/s   -242 kb/s   2.24 Mb/s   500 kb/s   1.5 Mb/s       3
 16 kB          0   3 Mb/s    516 kb/s   5.48 Mb/s     2 Mb/s     4 Mb/s       3
 16 kB       0.01   1 Mb/s           –           –     1 Mb/s     1 Mb/s       1
 32 kB          0   4 Mb/s   1.52 Mb/s   6.48 Mb/s     3 Mb/s     5 Mb/s       3
 32 kB       0.01        –           –           –          –          –       0
";
    assert_eq!(terminal(&sweep(), None), want);
    let narrow = terminal(&sweep(), Some(60));
    let header = narrow.lines().nth(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(header.as_deref(), Some("window a-s.loss mean 95 % from to seeds"));
    assert!(narrow.lines().skip(2).all(|line| line.chars().count() <= 60), "{narrow}");
    let stopped = Sweep { partial: true, problems: vec!["a, seed 7: cut".into()], ..sweep() };
    let text = terminal(&stopped, None);
    assert!(text.lines().next().is_some_and(|l| l.ends_with("PARTIAL")) && text.contains("a, seed 7: cut"));
}

#[test]
fn unknown_values_are_empty_or_null_but_not_zero() {
    let table = csv(&sweep());
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "window,window_bytes,a-s.loss,figure,n,mean,sd,low,high,min,max");
    assert_eq!(lines[4], "16 kB,16000,0.01,B-A.received_bps,1,1000000,,,,1000000,1000000");
    assert_eq!(lines[6], "32 kB,32000,0.01,B-A.received_bps,0,,,,,,");
    let parsed: Value = serde_json::from_str(&json(&sweep())).expect("JSON");
    let unknown = &parsed["points"][5]["figures"][0];
    assert_eq!(
        (&unknown["mean"], &unknown["samples"][0], &unknown["n"]),
        (&Value::Null, &Value::Null, &0.into())
    );
    let lines = plots(&html(&sweep())).remove(0)["lines"].clone();
    // By rising window: 16, 32, 64 kB.
    assert_eq!(lines[0]["x"], serde_json::json!([16e3, 32e3, 64e3]));
    assert_eq!(lines[0]["y"], serde_json::json!([3e6, 4e6, 2e6]));
    assert_eq!(lines[1]["y"], serde_json::json!([1e6, null, 1e6]));
    assert_eq!(lines[1]["band"]["low"], serde_json::json!([null, null, -242_069.0]));
    assert_eq!(lines[1]["label"], "a-s.loss 0.01");
}

#[test]
fn an_axis_may_have_categories() {
    let mut sweep = sweep();
    sweep.parameters[0] = varied("pattern", "", &[("a,b", None), ("c\"d", None), ("e\nf", None)]);
    for point in &mut sweep.points {
        point.values[0] = sweep.parameters[0].values[point.indices[0]].clone();
    }
    let plot = plots(&html(&sweep)).remove(0);
    assert_eq!(plot["x"]["categories"], serde_json::json!(["a,b", "c\"d", "e\nf"]));
    assert_eq!(plot["lines"][0]["x"], serde_json::json!([0.0, 1.0, 2.0]));
    let table = csv(&sweep);
    assert!(table.contains("\n\"a,b\",0,") && table.contains("\n\"c\"\"d\",0,"), "{table}");
    assert!(table.contains("\n\"e\nf\",0,"), "{table}");
}

#[test]
fn a_logarithmic_sweep_has_logarithmic_axes() {
    let axes = |sweep: &Sweep| {
        let plot = plots(&html(sweep)).remove(0);
        (plot["x"]["log"] == true, plot["y"]["log"] == true)
    };
    let mut sweep = sweep();
    assert_eq!(axes(&sweep), (false, false));
    sweep.parameters[0].log = true;
    assert_eq!(axes(&sweep), (true, false), "an interval that reaches below 0 has no logarithm");
    sweep
        .points
        .iter_mut()
        .for_each(|p| p.spreads[0] = Spread::of(vec![Some(10_f64.powi(p.indices[0] as i32)); 2]));
    assert_eq!(axes(&sweep), (true, true));
}

#[test]
fn hostile_texts_are_escaped() {
    let text = "<script>steal()</script>\"'><img src=x onerror=steal()><!--&\u{1b}[2J\u{202e}";
    let mut hostile = sweep();
    hostile.experiment = Experiment { name: text.into(), hash: text.into(), text: text.into() };
    (hostile.overrides, hostile.problems, hostile.metrics) =
        (vec![text.into()], vec![text.into()], vec![text.into()]);
    hostile.partial = true;
    for parameter in &mut hostile.parameters {
        parameter.key = text.into();
        parameter.values = vec![text.into(); 3];
        parameter.numbers = vec![None; 3];
    }
    hostile.points.iter_mut().for_each(|p| p.values = vec![text.into(); 2]);
    let page = html(&hostile);
    for raw in ["<script>steal", "<img", "<!--"] {
        assert!(!page.contains(raw), "{raw} is not escaped");
    }
    assert_eq!(page.matches("<script").count(), 3, "data, library, own script");
    let is_control = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert_eq!(terminal(&hostile, Some(80)).chars().find(|&c| is_control(c)), None);
}

#[test]
fn the_page_loads_nothing_and_may_be_empty() {
    let page = html(&sweep());
    for load in ["src=", "<link", "<iframe", "url(", "@import", "href=", "fetch(", "XMLHttp", "import("] {
        assert!(!page.contains(load), "{load}");
    }
    assert!(page.contains("default-src 'none'") && page.len() < 100_000, "{} bytes", page.len());
    let empty = Sweep { points: Vec::new(), partial: true, ..sweep() };
    assert!(html(&empty).contains("No point is complete") && html(&empty).ends_with("</html>"));
    assert!(terminal(&empty, None).starts_with("trunk  sim  0 points"));
    assert_eq!(csv(&empty).lines().count(), 1);
}
