//! Tests of the page in Chromium.

use std::path::PathBuf;

use serde_json::Value;

use crate::browser::{Browser, is_there};
use crate::fixture::{Fixture, HOSTILE, HOSTILE_PORT, S, Served, Table, now, plausible, series, small};
use trunkline_counters::counter::ValueKind;

/// Key codes of WebDriver.
const TAB: &str = "\u{e004}";
const LEFT: &str = "\u{e012}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

const DRAWN: &str = "document.querySelector('.plots')?.dataset.ready";

struct Window {
    browser: Browser,
    served: Served,
}

impl Window {
    fn open(&self, hash: &str) {
        self.browser.open("about:blank");
        self.browser.open(&format!("http://{}/{hash}", self.served.address));
    }

    fn text(&self, css: &str) -> String {
        let text = self.browser.run(&format!("return document.querySelector('{css}')?.innerText ?? ''"));
        text.as_str().unwrap_or_default().to_owned()
    }

    fn hash(&self) -> String {
        self.browser.run("return location.hash").as_str().unwrap_or_default().to_owned()
    }

    /// Returns how often the plot has been drawn.
    fn drawn(&self) -> i64 {
        let text = self.browser.run(&format!("return {DRAWN} ?? ''"));
        text.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Runs an action and waits until the plot has been drawn again.
    fn draws(&self, action: impl FnOnce()) {
        let before = self.drawn();
        action();
        self.browser.until(&format!("Number({DRAWN}) > {before}"));
    }

    /// Returns the plotted time range in milliseconds from the URL.
    fn span(&self) -> (f64, f64) {
        let script = "const p = new URLSearchParams(location.hash.split('?')[1]); return [Number(p.get('from')), Number(p.get('to'))]";
        let span = self.browser.run(script);
        (span[0].as_f64().unwrap(), span[1].as_f64().unwrap())
    }

    fn choose(&self, css: &str, value: &str) {
        let value = Value::from(value);
        self.browser.run(&format!(
            "const e = document.querySelector('{css}'); e.value = {value}; e.dispatchEvent(new Event('change', {{bubbles: true}}))"
        ));
    }
}

/// Selects, plots and zooms, and checks that a reload shows the same.
fn choose_and_zoom(window: &Window) {
    let browser = &window.browser;
    window.open("#/plot");
    browser.until("document.querySelector('#device')?.options.length === 6");
    window.choose("#device", "core1");
    browser.until("document.querySelectorAll('#part option').length === 1");
    window.choose("#part", "port/eth0");
    browser.until(DRAWN);
    assert_eq!(window.hash(), "#/plot?s=1%2C2&last=3600");
    assert_eq!(browser.run("return document.querySelectorAll('#series input:checked').length"), 2);
    window.draws(|| browser.click("button[data-last=\"all\"]"));
    browser.until("document.querySelectorAll('.legend tbody tr').length === 2");
    let legend = window.text(".legend tbody tr");
    assert!(legend.contains("core1 eth0 in octets") && legend.contains("8\u{202f}kb/s"), "{legend}");
    assert!(legend.contains("99\u{202f}kB"), "{legend}");
    assert!(window.text(".events").contains("no answer"), "{}", window.text(".events"));
    // The line is drawn in the colour of the first series.
    let drawn = "const c = document.querySelector('.panel canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
                 let n = 0; for (let i = 0; i < d.length; i += 4) if (Math.abs(d[i] - 11) < 8 && Math.abs(d[i + 1] - 107) < 8 && Math.abs(d[i + 2] - 203) < 8) n += 1; return n";
    assert!(browser.run(drawn).as_i64().unwrap() > 200, "{}", browser.run(drawn));

    // Drag over the middle third of the plot.
    let location = browser.run("const r = document.querySelector('.panel').getBoundingClientRect(); return [r.left, r.top, r.width, r.height]");
    let [left, top, width, height] = [0, 1, 2, 3].map(|at| location[at].as_f64().unwrap());
    let at = |share: f64| ((left + 78.0 + (width - 100.0) * share) as i64, (top + height / 2.0) as i64);
    window.draws(|| browser.drag(at(1.0 / 3.0), at(2.0 / 3.0)));
    let (from, to) = window.span();
    assert!((from - 1_033_000.0).abs() < 1_000.0 && (to - 1_066_000.0).abs() < 1_000.0, "{from} {to}");
    // Without the values at the cursor, which follows the mouse.
    let figures = || {
        browser.run("return [...document.querySelectorAll('.legend th, .legend td:not(.at)')].map(e => e.innerText).join()")
    };
    let legend = figures();

    // A link or a reload shows the same view.
    let hash = window.hash();
    browser.reload();
    browser.until(DRAWN);
    browser.until("document.querySelectorAll('.legend tbody tr').length === 2");
    assert_eq!((window.hash(), figures()), (hash, legend));
    browser.until("document.querySelector('#part').value === 'port/eth0'");
    // The back button of the browser.
    window.draws(|| drop(browser.run("history.back()")));
    assert!(window.hash().contains("last=all"), "{}", window.hash());
}

/// Plots the difference of two series and the other direction.
fn difference(window: &Window) {
    let browser = &window.browser;
    window.open("#/plot?s=1,2&last=all");
    browser.until("document.querySelector('.legend .does select')");
    window.draws(|| window.choose(".legend .does select", "2"));
    let rows = browser.run("return [...document.querySelectorAll('.legend tbody th')].map(e => e.innerText)");
    assert_eq!(rows[2], "core1 eth0 in octets − core1 eth0 out octets");
    let row = window.text(".legend tbody tr:nth-child(3)");
    assert!(row.contains("4\u{202f}kb/s") && row.contains("49.5\u{202f}kB"), "{row}");
    window.draws(|| browser.click("#reverse"));
    let first = window.text(".legend tbody tr");
    assert!(first.contains("core1 eth0 out octets") && first.contains("49.5\u{202f}kB"), "{first}");
    // The speed of the line has the same unit; a delay has its own plot.
    window.draws(|| browser.click("#series input[aria-label=\"level speed\"]"));
    browser.until("document.querySelectorAll('.legend tbody tr').length === 4");
    assert_eq!(browser.run("return document.querySelectorAll('.panel').length"), 1);
    window.open("#/plot?s=1,8&last=all");
    browser.until("document.querySelectorAll('.panel').length === 2");
    browser.until(
        "[...document.querySelectorAll('.panel')].every(e => e.firstChild.offsetWidth === e.clientWidth)",
    );
    // Cells can be shown as bits: 53 octets each.
    window.open("#/plot?s=4&last=all");
    browser.until("document.querySelector('.legend tbody tr')?.innerText.includes('70\u{202f}cells/s')");
    browser.click("#cells");
    browser.until("document.querySelector('.legend tbody tr').innerText.includes('29.7\u{202f}kb/s')");
    // Add a series to the plot.
    window.open("#/plot?s=1&last=all");
    browser.until("document.querySelector('#part').value === 'port/eth0'");
    window.choose("#device", "alpha");
    browser.until("document.querySelector('#part option')?.value === 'host'");
    browser.click("#keep");
    window.draws(|| window.choose("#part", "host"));
    assert_eq!(window.hash(), "#/plot?s=1%2C8&last=all");
}

/// Uses the keyboard only, and checks the announcements for screen readers.
fn keyboard(window: &Window) {
    let browser = &window.browser;
    window.open("#/plot?s=1&last=all");
    browser.until(DRAWN);
    browser.run("document.querySelector('#reverse').focus()");
    browser.keys(&[TAB]);
    assert_eq!(browser.run("return document.activeElement.className"), "plots");
    assert_ne!(browser.run("return getComputedStyle(document.activeElement).outlineStyle"), "none");
    browser.keys(&[LEFT]);
    browser.until("document.getElementById('announcer').textContent.includes('core1 eth0 in octets')");
    assert!(!window.text(".legend .at").is_empty());
    window.draws(|| browser.keys(&["+"]));
    let (from, to) = window.span();
    assert!((to - from - 49_500.0).abs() < 2_000.0, "{from} {to}");
    browser.keys(&[" ", LEFT, LEFT, LEFT, LEFT, LEFT, LEFT, LEFT, LEFT, LEFT]);
    window.draws(|| browser.keys(&[ENTER]));
    let (near, far) = window.span();
    assert!(far - near < 2_000.0 && from < near && far < to, "{near} {far}");
    window.draws(|| browser.keys(&[ESCAPE]));
    assert!(window.hash().contains("last=all"), "{}", window.hash());
    let unnamed = "[...document.querySelectorAll('button, select, input')].filter(e => !(e.getAttribute('aria-label') || e.innerText || e.labels?.length)).map(e => e.outerHTML)";
    assert_eq!(browser.run(&format!("return {unnamed}")), serde_json::json!([]));
    browser.run("document.querySelector('.figures').open = true");
    browser.until("document.querySelectorAll('.figures tbody tr').length > 50");
}

/// Device names are shown as text everywhere.
fn hostile_names(window: &Window) {
    let browser = &window.browser;
    window.open("#/plot");
    browser.until("document.querySelector('#device')?.options.length === 6");
    window.choose("#device", HOSTILE);
    browser.until("document.querySelectorAll('#part option').length === 1");
    assert_eq!(browser.run("return document.querySelector('#part option').textContent"), HOSTILE_PORT);
    let object = format!("port/{}", HOSTILE_PORT.replace('/', "%2F"));
    window.choose("#part", &object);
    browser.until(DRAWN);
    window.draws(|| browser.click("button[data-last=\"all\"]"));
    browser.until("document.querySelector('.legend tbody th')");
    assert!(window.text(".legend tbody th").contains(HOSTILE_PORT), "{}", window.text(".legend tbody th"));
    for page in ["hosts", "switches"] {
        window.open(&format!("#/{page}"));
        browser.until("document.querySelector('.page tbody')");
        assert!(window.text(".page").contains(HOSTILE), "{page}: {}", window.text(".page"));
    }
    let device =
        browser.run(&format!("return new URLSearchParams({{device: {}}}).toString()", Value::from(HOSTILE)));
    window.open(&format!("#/switches?{}", device.as_str().unwrap()));
    browser.until("document.querySelector('.page h2')");
    assert!(window.text(".page").contains(HOSTILE_PORT));
    assert_eq!(browser.run("return window.hacked === undefined && document.querySelectorAll('main img, main script').length === 0"), true);
}

/// Tables 1 and 2 of the 1996 paper, and a channel from end to end.
fn status(window: &Window) {
    let browser = &window.browser;
    let shows = |hash: &str, words: &[&str]| {
        window.open(hash);
        browser.until("document.querySelector('.page table, .page .route')");
        let text = window.text(".page");
        words.iter().for_each(|word| assert!(text.contains(word), "{hash}: {word:?} is not in {text}"));
    };
    shows("#/hosts", &["alpha", "no longer polled", "250\u{202f}µs", "Last seen"]);
    shows("#/switches", &["core1", "1 (1 active)"]);
    shows(
        "#/switches?device=core1",
        &["core1.example", "trouble with interfaces", "slow", "eth0", "up", "8\u{202f}kb/s", "1\u{202f}Gb/s"],
    );
    assert!(!window.text(".page").contains("trouble with paths"), "it has ended");
    shows("#/channels?device=s1", &["a", "33", "b", "40", "70\u{202f}cells/s"]);
    shows(
        "#/path?from=alpha&to=omega",
        &["1 channel leads there", "s1", "VC 0.33", "VC 2.40", "omega", "70\u{202f}cells/s"],
    );
    browser.click(".route p a");
    browser.until(DRAWN);
    assert!(window.hash().starts_with("#/plot?s="), "{}", window.hash());
}

fn colours(window: &Window) {
    let browser = &window.browser;
    let paper = || browser.run("return getComputedStyle(document.body).backgroundColor");
    window.open("#/plot?s=1&last=all");
    browser.until(DRAWN);
    assert_eq!(paper(), "rgb(255, 255, 255)");
    browser.prefer("dark");
    browser.until("getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 27)'");
    window.choose("#theme", "light");
    assert_eq!(paper(), "rgb(255, 255, 255)");
    browser.reload();
    browser.until(DRAWN);
    assert_eq!(paper(), "rgb(255, 255, 255)", "it is remembered");
    browser.prefer("light");
    window.choose("#theme", "");
}

#[test]
fn the_page_selects_zooms_and_shows() {
    if !is_there() {
        return;
    }
    let fixture = small();
    let window = Window { browser: Browser::start(), served: fixture.serve() };
    for check in [choose_and_zoom, difference, keyboard, hostile_names, status, colours] {
        check(&window);
        let errors = window.browser.errors();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

/// The start page shows the busiest interfaces as plots, the silent devices and the recent events.
#[test]
fn the_start_page_is_an_overview() {
    if !is_there() {
        return;
    }
    let mut fixture = Fixture::new();
    let begin = now() - 600 * S;
    let port =
        |name: &str, way: &str| series(&format!("port/{name}/{way}/octets"), ValueKind::Counter64, "octets");
    let ports = ["eth0", "eth1"].into_iter().flat_map(|name| ["in", "out"].map(|way| port(name, way)));
    let mut core = fixture.table("core1", "interfaces", S, begin, ports.collect());
    let mut edge =
        fixture.table("edge1", "interfaces", S, begin, vec![port("eth0", "in"), port("eth0", "out")]);
    let window = Window { browser: Browser::start(), served: fixture.serve() };
    let browser = &window.browser;
    // Polls up to some seconds ahead of the clock; `edge1` is silent for the last 20.
    let end = now() + 30 * S;
    while core.at <= end {
        fixture.poll(&mut core, &[125_000, 50_000, 1_250, 500], &[]);
    }
    while edge.at <= end {
        if edge.at > end - 20 * S {
            fixture.silence(&mut edge);
        } else {
            fixture.poll(&mut edge, &[12_500, 5_000], &[]);
        }
    }
    fixture.flush();
    window.open("");
    browser.until("document.querySelector('.cards')?.dataset.ready");
    assert_eq!(browser.run("return document.querySelector('nav a[aria-current]').innerText"), "Overview");
    assert!(
        window.text(".summary").contains("2 devices, 1 responding, 1 silent"),
        "{}",
        window.text(".summary")
    );
    let names = browser.run("return [...document.querySelectorAll('.card h3')].map(e => e.innerText)");
    assert_eq!(names, serde_json::json!(["core1 eth0", "edge1 eth0", "core1 eth1"]), "the busiest first");
    let rates = window.text(".card .rates");
    assert!(rates.contains("in 1\u{202f}Mb/s") && rates.contains("out 400\u{202f}kb/s"), "{rates}");
    let pixels = "const c = document.querySelector('.card canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
                  let n = 0; for (let i = 0; i < d.length; i += 4) if (Math.abs(d[i] - 11) < 8 && Math.abs(d[i + 1] - 107) < 8 && Math.abs(d[i + 2] - 203) < 8) n += 1; return n";
    assert!(browser.run(pixels).as_i64().unwrap() > 20, "{}", browser.run(pixels));
    assert!(window.text("#silent").contains("edge1"), "{}", window.text("#silent"));
    let events = window.text("#recent");
    assert!(
        events.contains("edge1") && events.contains("silent") && events.contains("no answer"),
        "{events}"
    );
    // A card leads to the plot.
    browser.click(".card a");
    browser.until(DRAWN);
    assert_eq!(window.hash(), "#/plot?s=1%2C2&last=3600");
    assert!(browser.errors().is_empty(), "{:?}", browser.errors());
}

/// Polls a table until a given time.
fn poll_until(fixture: &mut Fixture, table: &mut Table, end: i64, answers: bool) {
    while table.at <= end {
        if answers { fixture.poll(table, &[125_000, 50_000], &[]) } else { fixture.silence(table) }
    }
    fixture.flush();
}

#[test]
fn new_readings_and_silent_devices_are_shown() {
    if !is_there() {
        return;
    }
    let mut fixture = Fixture::new();
    let port = |way: &str| series(&format!("port/eth0/{way}/octets"), ValueKind::Counter64, "octets");
    let begin = now() - 600 * S;
    let mut table = fixture.table("core1", "interfaces", S, begin, vec![port("in"), port("out")]);
    poll_until(&mut fixture, &mut table, now(), true);
    let window = Window { browser: Browser::start(), served: fixture.serve() };
    let browser = &window.browser;
    window.open("#/plot?s=1,2&last=3600&live=1");
    browser.until("document.querySelector('.live.on')");
    let before = window.text(".legend tbody tr");
    assert!(before.contains("1\u{202f}Mb/s"), "{before}");
    // New readings are drawn without a user action.
    let receives = |write: &mut dyn FnMut()| {
        let seen = browser.run("return document.querySelector('.plots').dataset.updates ?? '0'");
        write();
        browser.until(&format!(
            "Number(document.querySelector('.plots').dataset.updates) > {}",
            seen.as_str().unwrap()
        ));
    };
    window.draws(|| {
        receives(&mut || {
            let end = now().max(table.at);
            poll_until(&mut fixture, &mut table, end, true);
        })
    });
    assert_eq!(browser.run("return document.querySelector('.banner').hidden"), true);
    // The device dies: the page reports and marks it.
    receives(&mut || {
        let end = now().max(table.at + 3 * S);
        poll_until(&mut fixture, &mut table, end, false);
    });
    browser.until("document.querySelector('.banner').innerText.includes('core1 has not answered since')");
    browser.until("document.getElementById('announcer').textContent.includes('core1 has not answered')");
    // The last polls may be some seconds ahead of the clock.
    browser.until("document.querySelector('.events').innerText.includes('no answer')");
    // A page opened later reports it as well.
    browser.reload();
    browser.until("document.querySelector('.banner').innerText.includes('core1 has not answered since')");
    browser.until("document.querySelector('.live.on')");
    // The device answers again.
    receives(&mut || {
        let end = now().max(table.at + S);
        poll_until(&mut fixture, &mut table, end, true);
    });
    browser.until("document.querySelector('.banner').hidden");
    browser.until("document.getElementById('announcer').textContent.includes('answers again')");
    window.draws(|| browser.click(".live"));
    assert!(!window.hash().contains("live"), "{}", window.hash());
    // Ahead of the clock, so that the device counts as polled on a slow machine, too.
    let end = now() + 120 * S;
    poll_until(&mut fixture, &mut table, end, true);
    window.open("#/hosts");
    browser.until("document.querySelector('.page td .good')?.innerText === 'responding'");
    assert!(browser.errors().is_empty(), "{:?}", browser.errors());
}

/// Takes the screenshot of the README with `BLESS=1`.
#[test]
fn screenshot_of_the_readme() {
    if !is_there() || std::env::var_os("BLESS").is_none() {
        return;
    }
    let mut fixture = Fixture::new();
    plausible(&mut fixture, 3);
    let window = Window { browser: Browser::start(), served: fixture.serve() };
    let browser = &window.browser;
    window.open("#/plot?s=1,2&last=10800");
    browser.until(DRAWN);
    browser.until("document.querySelector('#series table')");
    browser.run("document.querySelector('.plots').focus({ focusVisible: false })");
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let images = root.ancestors().nth(2).unwrap().join("docs/images");
    browser.picture(&images.join("monitor.png"));
}
