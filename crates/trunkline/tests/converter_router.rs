//! The bundle converter behind multicast routers, and on a medium that carries half of what comes: two of level 1 on one
//! network, sixteen hosts, in namespaces of their own. Most of the checks are run by `make soak` only (feature `soak`).

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::io::Write;
use std::process::Command;

use crate::command::{TestDir, can, repository};

const ROUTER: &str = "crates/trunkline/tests/converter/router.py";
const OVERLOAD: &str = "crates/trunkline/tests/converter/overload.py";

/// Namespaces that end with what runs in them.
const UNSHARED: [&str; 7] = ["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--mount-proc"];

/// How a client ends that cannot tell (`EX_TEMPFAIL`).
const STOOD_STILL: i32 = 75;

/// Runs a check of a client in them; what it measured is printed.
fn check(client: &str, name: &str) {
    let works = |command: &[&str]| can(&[&UNSHARED, command].concat());
    if !works(&["python3", "--version"]) || !can(&["smcrouted", "-h"]) || !can(&["igmpproxy", "-h"]) {
        return;
    }
    // If the machine stalled so long that a peer was considered dead, the check is inconclusive: repeat it.
    let tries = || {
        let mut command = Command::new(UNSHARED[0]);
        command.args(&UNSHARED[1..]).arg("python3").arg(repository(client));
        command.arg(env!("CARGO_BIN_EXE_trunkline")).arg(name);
        TestDir::new().end(command)
    };
    let mut ended = tries();
    for _ in 0..3 {
        if ended.status != STOOD_STILL {
            break;
        }
        ended = tries();
    }
    let said = ended.out.strip_suffix(&format!("ok {name}\n"));
    assert!(ended.status == 0 && said.is_some(), "{}{}", ended.out, ended.err);
    let said = said.unwrap_or_default();
    print!("{said}");
    // Also where what tests print is kept.
    for line in said.lines().filter(|line| line.starts_with("skipped: ")) {
        let _ = writeln!(std::io::stderr(), "{name} {line}");
    }
}

macro_rules! checks {
    ($($client:ident: $($(#[$when:meta])* $name:ident)*;)*) => {
        $($(
            $(#[$when])*
            #[test]
            fn $name() {
                check($client, stringify!($name));
            }
        )*)*

        /// Each check of the clients is a test here.
        #[test]
        fn no_check_is_left_out() {
            $(
                let text = std::fs::read_to_string(repository($client)).unwrap();
                let there: Vec<&str> =
                    text.lines().filter_map(|line| line.strip_prefix("def check_")?.strip_suffix("():")).collect();
                assert_eq!(there, [$(stringify!($name)),*]);
            )*
        }
    };
}

checks! {
    ROUTER:
        #[cfg(feature = "soak")]
        routed_classic
        routed_wide
        a_switch_classic
        #[cfg(feature = "soak")]
        a_switch_wide
        joins_classic
        #[cfg(feature = "soak")]
        joins_wide
        #[cfg(feature = "soak")]
        restarts_classic
        restarts_wide
        #[cfg(feature = "soak")]
        all_groups_at_once_classic
        all_groups_at_once_wide;
    OVERLOAD:
        #[cfg(feature = "soak")]
        thresholds_classic
        #[cfg(feature = "soak")]
        thresholds_wide
        #[cfg(feature = "soak")]
        twice_the_medium_classic
        #[cfg(feature = "soak")]
        twice_the_medium_wide_by_levels
        twice_the_medium_wide_by_rates;
}
