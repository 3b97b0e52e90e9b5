//! The page: HTML, styles and scripts, in the binary.

/// A file of the page.
pub struct Asset {
    /// Where it is.
    pub path: &'static str,
    /// Its media type.
    pub media: &'static str,
    /// What it holds.
    pub text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const fn asset(path: &'static str, media: &'static str, text: &'static str) -> Asset {
    Asset { path, media, text }
}

/// All of them. The page loads nothing from elsewhere.
pub const ASSETS: &[Asset] = &[
    asset("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    asset("/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    asset("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    asset("/js/main.js", SCRIPT, include_str!("../page/js/main.js")),
    asset("/js/ask.js", SCRIPT, include_str!("../page/js/ask.js")),
    asset("/js/figures.js", SCRIPT, include_str!("../page/js/figures.js")),
    asset("/js/plot.js", SCRIPT, include_str!("../page/js/plot.js")),
    asset("/js/lines.js", SCRIPT, include_str!("../page/js/lines.js")),
    asset("/js/live.js", SCRIPT, include_str!("../page/js/live.js")),
    asset("/js/canvas.js", SCRIPT, include_str!("../page/js/canvas.js")),
    asset("/js/choose.js", SCRIPT, include_str!("../page/js/choose.js")),
    asset("/js/status.js", SCRIPT, include_str!("../page/js/status.js")),
    asset("/api/openapi.json", "application/json", include_str!("openapi.json")),
];
