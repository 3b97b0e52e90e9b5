//! Skips tests that need namespaces, interfaces or programs that a machine may lack.

use std::{env, fmt};

/// Prints why a test is skipped. With `TRUNKLINE_MUST=1` the test fails instead, so that a machine that should run
/// all tests cannot pass without running them.
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
    fn required_test_fails_instead_of_skipping() {
        if is_child() {
            return super::skip("no reason");
        }
        for (must, passes) in [(None, true), (Some("0"), true), (Some("1"), false)] {
            let mut again = Command::new(std::env::current_exe().unwrap());
            again.args(["must::tests::required_test_fails_instead_of_skipping", "--exact"]).env(HERE, "1");
            again.env_remove("TRUNKLINE_MUST").envs(must.map(|must| ("TRUNKLINE_MUST", must)));
            assert_eq!(again.output().unwrap().status.success(), passes, "{must:?}");
        }
    }

    fn is_child() -> bool {
        std::env::var_os(HERE).is_some()
    }
}
