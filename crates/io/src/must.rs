//! Tests that need what not every machine grants: namespaces, interfaces, programs.

use std::{env, fmt};

/// Says why a test is skipped. Where nothing may be missing, which `TRUNKLINE_MUST=1` says, that fails it: else a machine
/// that should run all tests might run none, and say that all is well.
///
/// # Panics
/// With `TRUNKLINE_MUST=1`.
#[track_caller]
pub fn skip(why: impl fmt::Display) {
    assert!(
        env::var_os("TRUNKLINE_MUST").is_none_or(|must| must != "1"),
        "nothing may be skipped here: {why}"
    );
    eprintln!("skipped: {why}");
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const HERE: &str = "TRUNKLINE_TEST_OF_MUST";

    #[test]
    fn what_must_run_is_not_skipped() {
        if env_says_here() {
            return super::skip("no reason");
        }
        for (must, passes) in [(None, true), (Some("0"), true), (Some("1"), false)] {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["must::tests::what_must_run_is_not_skipped", "--exact"]).env(HERE, "1");
            again.env_remove("TRUNKLINE_MUST").envs(must.map(|must| ("TRUNKLINE_MUST", must)));
            assert_eq!(again.output().unwrap().status.success(), passes, "{must:?}");
        }
    }

    fn env_says_here() -> bool {
        std::env::var_os(HERE).is_some()
    }
}
