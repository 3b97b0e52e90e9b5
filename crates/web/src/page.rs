//! The web page: HTML, style sheets and scripts, embedded in the binary.

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All files: path in URLs, media type and contents. The page loads nothing from other servers.
pub const ASSETS: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/chart.css", "text/css; charset=utf-8", trunkline_chart::STYLE),
    ("/chart.js", SCRIPT, trunkline_chart::SCRIPT),
    ("/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/js/main.js", SCRIPT, include_str!("../page/js/main.js")),
    ("/js/common.js", SCRIPT, include_str!("../page/js/common.js")),
    ("/js/format.js", SCRIPT, include_str!("../page/js/format.js")),
    ("/js/overview.js", SCRIPT, include_str!("../page/js/overview.js")),
    ("/js/plot.js", SCRIPT, include_str!("../page/js/plot.js")),
    ("/js/series.js", SCRIPT, include_str!("../page/js/series.js")),
    ("/js/live.js", SCRIPT, include_str!("../page/js/live.js")),
    ("/js/panel.js", SCRIPT, include_str!("../page/js/panel.js")),
    ("/js/chooser.js", SCRIPT, include_str!("../page/js/chooser.js")),
    ("/js/status.js", SCRIPT, include_str!("../page/js/status.js")),
    ("/api/openapi.json", "application/json", include_str!("openapi.json")),
];
