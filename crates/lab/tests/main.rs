//! Labs with real kernels. Each test makes and removes its own; none asserts a time or a rate of this machine.
//!
//! | module | contents |
//! | --- | --- |
//! | [`network`] | ping and iperf3 through a lab; losses, marks and damage |
//! | [`groups`] | packets to multicast groups, and what kernels send by themselves |
//! | [`ipv6`] | the same over IPv6, and routers |
//! | [`backend`] | whole runs beside the simulator; programs, and entering hosts
//! | [`capture`] | captures as tshark reads them
//! | [`bundles`] | bundle converters
//! | [`llc`] | stations of IEEE 802.2
//! | [`rates`] | credits, explicit rates, admission
//! | [`cleanup`] | what is left of a lab |
//! | [`transport`] | options of transports that the kernel must keep |
//! | [`forbidden`] | settings of the kernel that forbid labs |

#![allow(clippy::disallowed_methods, reason = "kernels run in real time")]

mod backend;
mod bundles;
mod capture;
mod cleanup;
mod forbidden;
mod groups;
mod ipv6;
mod llc;
mod network;
mod rates;
mod transport;

use std::os::fd::AsFd as _;
use std::process::{Command, ExitCode};

use trunkline_experiment::plan::Plan;
use trunkline_experiment::{Source, parse};
use trunkline_io::must::skip;
use trunkline_live::limits::Limits;

/// Set in the process that repeats the tests as an ordinary user.
const ORDINARY: &str = "TRUNKLINE_LAB_AS_ORDINARY_USER";

/// The argument of the process that holds a lab.
const HOLD: &str = "hold-a-lab";

/// The arguments of the process that captures in a lab: this and the folder.
const HOLD_CAPTURE: &str = "hold-a-capture";
/// The argument of the process that prints why it can have no namespace.
const FORBIDDEN: &str = "forbidden";

/// A test, by name.
type Test = (&'static str, fn());

const TESTS: [Test; 41] = [
    ("network::ping_sees_the_delay", network::ping_sees_the_delay),
    ("network::iperf3_gets_no_more_than_the_rate", network::iperf3_gets_no_more_than_the_rate),
    ("network::losses_are_binomial", network::losses_are_binomial),
    ("network::a_full_queue_drops", network::a_full_queue_drops),
    ("network::the_kernel_sees_marks", network::the_kernel_sees_marks),
    ("network::damaged_segments_are_discarded", network::damaged_segments_are_discarded),
    ("network::what_the_lab_does_not_have_is_refused", network::what_the_lab_does_not_have_is_refused),
    ("network::an_interface_that_is_down_loses_packets", network::an_interface_that_is_down_loses_packets),
    ("transport::a_window_limits_the_throughput", transport::a_window_limits_the_throughput),
    ("ipv6::a_router_forwards_and_counts_hops", ipv6::a_router_forwards_and_counts_hops),
    ("ipv6::a_router_reports_packets_that_are_too_big", ipv6::a_router_reports_packets_that_are_too_big),
    ("ipv6::a_link_with_a_short_mtu_has_ipv4_only", ipv6::a_link_with_a_short_mtu_has_ipv4_only),
    ("ipv6::the_kernel_sees_marks", ipv6::the_kernel_sees_marks),
    ("ipv6::damaged_segments_are_discarded", ipv6::damaged_segments_are_discarded),
    ("groups::kernels_send_nothing_by_themselves", groups::kernels_send_nothing_by_themselves),
    ("groups::groups_of_programs_stay_between_routers", groups::groups_of_programs_stay_between_routers),
    ("cleanup::nothing_is_left", cleanup::nothing_is_left),
    ("cleanup::killed_labs_leave_nothing", cleanup::killed_labs_leave_nothing),
    ("forbidden::the_setting_that_forbids_is_named", forbidden::the_setting_that_forbids_is_named),
    ("network::broadcasts_reach_the_network", network::broadcasts_reach_the_network),
    ("network::reports_about_groups_are_no_losses", network::reports_about_groups_are_no_losses),
    ("backend::what_a_host_cannot_send_is_counted", backend::what_a_host_cannot_send_is_counted),
    (
        "backend::what_only_the_simulator_applies_is_refused",
        backend::what_only_the_simulator_applies_is_refused,
    ),
    ("backend::what_no_machine_carries_is_refused", backend::what_no_machine_carries_is_refused),
    ("backend::a_lab_loses_what_the_simulator_loses", backend::a_lab_loses_what_the_simulator_loses),
    (
        "backend::a_router_on_a_hub_forwards_only_what_leaves_the_hub",
        backend::a_router_on_a_hub_forwards_only_what_leaves_the_hub,
    ),
    ("backend::routers_forward_groups", backend::routers_forward_groups),
    ("backend::programs_run_on_their_hosts", backend::programs_run_on_their_hosts),
    (
        "backend::a_failed_program_is_reported_beside_one_that_runs",
        backend::a_failed_program_is_reported_beside_one_that_runs,
    ),
    (
        "backend::a_running_lab_is_entered_and_a_killed_one_is_forgotten",
        backend::a_running_lab_is_entered_and_a_killed_one_is_forgotten,
    ),
    ("capture::a_capture_has_what_the_link_carried", capture::a_capture_has_what_the_link_carried),
    ("capture::the_capture_of_a_killed_lab_can_be_read", capture::the_capture_of_a_killed_lab_can_be_read),
    (
        "llc::stations_exchange_what_they_exchange_in_the_simulator",
        llc::stations_exchange_what_they_exchange_in_the_simulator,
    ),
    ("llc::acknowledged_messages_survive_losses", llc::acknowledged_messages_survive_losses),
    (
        "bundles::converters_carry_what_they_carry_in_the_simulator",
        bundles::converters_carry_what_they_carry_in_the_simulator,
    ),
    ("rates::credits_of_datagrams_lose_nothing", rates::credits_of_datagrams_lose_nothing),
    ("rates::losses_never_stop_a_sender_with_credits", rates::losses_never_stop_a_sender_with_credits),
    ("rates::explicit_rates_share_a_line", rates::explicit_rates_share_a_line),
    (
        "rates::explicit_rates_that_no_one_obeys_are_refused",
        rates::explicit_rates_that_no_one_obeys_are_refused,
    ),
    ("rates::a_link_admits_what_fits", rates::a_link_admits_what_fits),
    ("llc::a_token_goes_round", llc::a_token_goes_round),
];

/// The tests as root, and again as an ordinary user without capabilities.
fn main() -> ExitCode {
    let first = std::env::args().nth(1);
    if first.as_deref() == Some("agent") {
        // This program is also the agent of a host.
        let stream = std::io::stdin().as_fd().try_clone_to_owned().expect("standard input is open");
        trunkline_live::agent::serve(stream.into(), &Limits::default());
        return ExitCode::SUCCESS;
    }
    let filter: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_root = nix::unistd::geteuid().is_root();
    if first.as_deref() == Some(FORBIDDEN) {
        return forbidden::report();
    }
    // Before there is a second thread.
    if let Err(error) = trunkline_lab::enter_user_namespace() {
        skip(error);
        return ExitCode::SUCCESS;
    }
    if first.as_deref() == Some(HOLD) {
        cleanup::hold();
        return ExitCode::SUCCESS;
    }
    if let (Some(HOLD_CAPTURE), Some(folder)) = (first.as_deref(), std::env::args_os().nth(2)) {
        capture::hold(folder.as_ref());
    }
    if !std::path::Path::new("/dev/net/tun").exists() {
        skip("no /dev/net/tun");
        return ExitCode::SUCCESS;
    }
    for (name, test) in TESTS {
        if filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str())) {
            println!("test {name}");
            test();
        }
    }
    if is_root && std::env::var_os(ORDINARY).is_none() {
        return repeat_as_ordinary_user(&filter);
    }
    ExitCode::SUCCESS
}

fn repeat_as_ordinary_user(filter: &[String]) -> ExitCode {
    println!("as an ordinary user");
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    // A copy, because an ordinary user may not enter the folder of the build.
    let Ok(folder) = tempfile::tempdir() else { return ExitCode::FAILURE };
    let copy = folder.path().join("test");
    let copied = std::fs::copy(&program, &copy).and_then(|_| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
    });
    if copied.is_err() {
        return ExitCode::FAILURE;
    }
    // Where only root may open the device, this process alone sees one that all may open.
    let device = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200";
    let ordinary = "exec setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &format!("{device}; {ordinary}"), "sh"]);
    let status = command.arg(&copy).args(filter).env(ORDINARY, "1").current_dir("/").status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            skip(format!("unshare: {error}"));
            ExitCode::SUCCESS
        }
    }
}

/// Returns the plan of a network between the hosts `a` and `b`.
fn plan(network: &str) -> Plan {
    let text = format!(
        "experiment \"lab\" {{ network {{ {network} }} connection {{ xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; }} }}"
    );
    let parsed = parse(&Source { name: "lab", text: &text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics))
}
