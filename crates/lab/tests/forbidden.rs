//! Settings of the kernel that forbid labs, in user namespaces of their own.

use std::process::{Command, ExitCode};

use trunkline_io::must::skip;
use trunkline_lab::{Namespace, NamespaceError, enter_user_namespace};

use crate::FORBIDDEN;

/// The error names the setting with which this kernel forbids user namespaces, or has no more network namespaces.
pub fn the_setting_that_forbids_is_named() {
    for (setting, text) in [
        (
            "max_user_namespaces",
            "this user may not create network namespaces (the kernel forbids it: /proc/sys/user/max_user_namespaces is 0): No space left on device (os error 28)\n",
        ),
        (
            "max_net_namespaces",
            "cannot create a network namespace (the kernel forbids it: the limit /proc/sys/user/max_net_namespaces is reached): No space left on device (os error 28)\n",
        ),
    ] {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-ec"]);
        command.arg(format!("echo 0 > /proc/sys/user/{setting}; exec \"$@\"")).arg("sh");
        let Ok(output) = command.arg(std::env::current_exe().unwrap()).arg(FORBIDDEN).output() else {
            return skip("unshare: not installed");
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{output:?}");
    }
}

/// Prints why this process can have no network namespace.
pub fn report() -> ExitCode {
    let created: Result<Namespace, NamespaceError> = enter_user_namespace().and_then(|()| Namespace::new());
    println!("{}", created.map_or_else(|error| error.to_string(), |_| "a namespace".into()));
    ExitCode::SUCCESS
}
