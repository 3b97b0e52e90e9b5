//! Bytes → text → plan → text → the same plan. Nothing may panic, and no file is touched.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run experiment -- -dict=fuzz/experiment.dict`

#![no_main]

use libfuzzer_sys::fuzz_target;
use trunkline_experiment::{FileError, Severity, Source, apply_override, parse_with, plan_text, render};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let source = Source { name: "fuzz.ns", text: &text, folder: None };
    // The first byte decides what the files hold that the text names.
    let files = |_: &str| match bytes.first().map(|byte| byte % 3) {
        Some(0) => Err(FileError::NoFolder),
        Some(1) => Ok(text.to_string()),
        _ => Ok("1\n2\n".to_owned()),
    };
    let parsed = parse_with(&source, &files);
    let wrong = parsed.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    assert_eq!(parsed.plan.is_none(), wrong, "a plan exactly when no error");
    let _ = render(&source, &parsed.diagnostics, bytes.len().is_multiple_of(2));
    let Some(mut plan) = parsed.plan else { return };
    let printed = plan_text(&plan);
    let again = parse_with(&Source { text: &printed, ..source }, &files).plan;
    assert_eq!(again.map(|again| again.hash()), Some(plan.hash()), "{printed}");
    let _ = apply_override(&mut plan, "duration", &text);
    let _ = apply_override(&mut plan, "messagesize", &text);
    // Of a name that there is, and of whatever the text says.
    let name = plan.network.as_ref().and_then(|n| n.links.first()).map(|l| format!("{}.delay", l.name));
    let _ = apply_override(&mut plan, &name.unwrap_or_default(), &text);
    let (key, value) = text.split_once('=').unwrap_or((&text, "1"));
    let _ = apply_override(&mut plan, key, value);
});
