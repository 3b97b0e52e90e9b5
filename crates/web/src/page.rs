//! The web page: HTML, style sheets and scripts, embedded in the binary.

/// A file of the page.
pub struct Asset {
    /// Its path in URLs.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its contents.
    pub body: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const fn asset(path: &'static str, media: &'static str, text: &'static str) -> Asset {
    Asset { path, content_type: media, body: text }
}

/// All files. The page loads nothing from other servers.
pub const ASSETS: &[Asset] = &[
    asset("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    asset("/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    asset("/chart.css", "text/css; charset=utf-8", trunkline_chart::STYLE),
    asset("/chart.js", SCRIPT, trunkline_chart::SCRIPT),
    asset("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    asset("/js/main.js", SCRIPT, include_str!("../page/js/main.js")),
    asset("/js/common.js", SCRIPT, include_str!("../page/js/common.js")),
    asset("/js/format.js", SCRIPT, include_str!("../page/js/format.js")),
    asset("/js/overview.js", SCRIPT, include_str!("../page/js/overview.js")),
    asset("/js/plot.js", SCRIPT, include_str!("../page/js/plot.js")),
    asset("/js/series.js", SCRIPT, include_str!("../page/js/series.js")),
    asset("/js/live.js", SCRIPT, include_str!("../page/js/live.js")),
    asset("/js/panel.js", SCRIPT, include_str!("../page/js/panel.js")),
    asset("/js/chooser.js", SCRIPT, include_str!("../page/js/chooser.js")),
    asset("/js/status.js", SCRIPT, include_str!("../page/js/status.js")),
    asset("/api/openapi.json", "application/json", include_str!("openapi.json")),
];
