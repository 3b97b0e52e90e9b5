//! The bundle converter as its peers meet it: real sockets and groups, and a client that has nothing of ours.

#![allow(clippy::disallowed_methods, reason = "these tests watch programs that run in real time")]

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::command::{Running, TestDir, can, repository, signal, within};
use nix::sys::signal::Signal;

/// What has not come by then does not come.
const LIMIT: Duration = Duration::from_secs(30);
const CLASSIC: &str = "crates/trunkline/tests/converter/classic.py";

/// Runs a check of the independent client.
fn check(name: &str) {
    if !can(&["python3", "--version"]) {
        return;
    }
    let mut command = Command::new("python3");
    command.arg(repository(CLASSIC)).arg(env!("CARGO_BIN_EXE_trunkline")).arg(name);
    let dir = TestDir::new();
    let ended = dir.end(command);
    assert_eq!((ended.status, ended.out), (0, format!("ok {name}\n")), "{}", ended.err);
}

macro_rules! checks {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        /// Each check of the client is a test here.
        #[test]
        fn no_check_is_left_out() {
            let text = std::fs::read_to_string(repository(CLASSIC)).unwrap();
            let there: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("def check_")?.strip_suffix("():")).collect();
            assert_eq!(there, [$(stringify!($name)),*]);
        }
    };
}

checks! {
    masks_groups_and_no_reflection
    n255_messages_and_the_longest_bundle
    control_against_data
    malformed_bundles_are_counted_and_dropped
    a_host_that_refuses_is_removed_and_silence_removes_nobody
    pairs_and_priority_at_twice_the_load
    two_level_1_bring_what_is_wanted_and_nothing_else
    level_1_takes_longest_messages_and_counts_what_is_none
    any_order_and_restarts
    a_daemon_says_one_line_and_pages_when_asked
    deadlines_are_those_of_the_flags_and_of_the_file
    recorded_dis_arrives_byte_for_byte
    pdus_that_lie_hurt_no_neighbour
    rules_sort_pdus_and_follow_an_entity
    dis_by_broadcast_and_multicast
}

/// The commands under a heading of docs/reference/bundle.md.
fn commands(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository("docs/reference/bundle.md")).unwrap();
    let (_, section) = text.split_once(heading).expect("a heading");
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block");
    block.lines().filter_map(|line| line.strip_prefix("trunkline ")).map(str::to_owned).collect()
}

/// What a user does in four terminals: who sends begins when the other is known to hear, and that one ends when it has all.
const TWO_MINUTES: &str = r#"
trunkline="$1"
jobs=
# Whatever happens, nothing is left behind.
trap 'kill $jobs $one $two 2>/dev/null || true; wait' EXIT
ip link set lo up
start() { out="$1"; shift; "$trunkline" "$@" >"$out" & }
# Waits until the metrics of a page satisfy a condition; if they never do, prints them all.
until_so() {
    for _ in $(seq 100); do [ "$(python3 page.py "$1" "$2" 2>/dev/null)" = "$3" ] && return; sleep 0.2; done
    cat one two; python3 page.py 9100; python3 page.py 9101; exit 9
}
start one $ONE --status 127.0.0.1:9101; one=$!
start level1 $LEVEL1; jobs="$jobs $!"
start central $CENTRAL --status 127.0.0.1:9100; jobs="$jobs $!"
until_so 9100 "trunkline_converter_wanted{host=\"$HOST\"}" 64
start two $TWO; two=$!
wait $two
sent=$(sed -n 's/^sent \([0-9]*\),.*/\1/p' two)
until_so 9101 'trunkline_converter_messages_total{way="received"}' "$sent"
kill -INT $one; wait $one
kill $jobs; wait $jobs
cat level1 central; tail -n 1 two; tail -n 1 one
"#;

/// Returns one metric of a page, or all that are not 0.
const PAGE: &str = r#"
import sys, urllib.request
page = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read().decode()
figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if line[0] != '#')
print(figures[sys.argv[2]] if sys.argv[2:] else {name: n for name, n in figures.items() if n != "0"})
"#;

fn two_minutes(heading: &str, host: &str) -> [String; 4] {
    let dir = TestDir::new();
    let commands = commands(heading);
    dir.write("page.py", PAGE);
    let mut command = dir.unshared("-n", TWO_MINUTES, &[]);
    for (name, line) in ["LEVEL1", "CENTRAL", "ONE", "TWO"].iter().zip(&commands) {
        command.env(name, line);
    }
    command.env("HOST", host);
    let ended = dir.end(command);
    assert_eq!((commands.len(), ended.status, ended.err.as_str()), (4, 0, ""), "{}", ended.out);
    let lines: Vec<String> = ended.out.lines().map(str::to_owned).collect();
    lines.try_into().expect("a line of each")
}

#[test]
fn two_minutes_on_one_machine_go_as_they_are_written() {
    if !can(&["unshare", "-n", "ip", "link", "set", "lo", "up"]) {
        return;
    }
    for (heading, host) in [("## Two minutes", "1"), ("### The same in format 2", "1000")] {
        let [level1, central, two, one] = two_minutes(heading, host);
        assert!(level1.starts_with("level 1 number 1 on 127.0.0.1:3457") || host != "1", "{level1}");
        assert!(central.starts_with("central on 127.0.0.1:3450"), "{central}");
        // `sent 16000, refused 0, received 0, lost 0 in 4.0 s`
        let sent = two.strip_prefix("sent ").and_then(|rest| rest.split(',').next()).expect(&two);
        assert!(one.contains(&format!("received {sent}, lost 0 ")), "{two}\n{one}");
        assert_eq!(sent.parse::<u64>().map(|sent| sent > 0), Ok(true));
    }
}

/// Two namespaces with a line between them: the converter here, with one host; level 1 and the other host there. Then what
/// they said, once each has what it waits for.
const LINE: &str = r#"
trunkline="$1"
jobs=
trap 'kill $jobs 2>/dev/null || true; wait' EXIT
unshare -n sleep 300 & there=$!; jobs="$jobs $there"
for _ in $(seq 500); do
    [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ] && break; sleep 0.01
done
at() { nsenter -t $there -n "$@"; }
ip link set lo up; at ip link set lo up
ip link add here mtu 1500 type veth peer name there netns $there
ip addr add 10.9.0.1/24 dev here; ip link set here up
at ip addr add 10.9.0.2/24 dev there; at ip link set there up
# What is sent before that is lost.
for _ in $(seq 500); do ip link show here | grep -q 'state UP' && at ip link show there | grep -q 'state UP' && break; sleep 0.02; done
# A socket may join one group there.
at sh -c 'echo 1 >/proc/sys/net/ipv4/igmp_max_memberships'
says() { for _ in $(seq 1000); do grep -q "$2" "$1" 2>/dev/null && return; sleep 0.02; done; cat "$1"; exit 9; }
nsenter -t $there -n "$trunkline" converter level1 --central 10.9.0.1 --listen 10.9.0.2 --interface 10.9.0.2 >level1 &
jobs="$jobs $!"
says level1 'on 10.9.0.2:3457'
"$trunkline" converter central --level1 1=10.9.0.2 --listen-level1 10.9.0.1 --listen-hosts 10.9.0.1 \
    --hosts $HOSTS --capacity 100000000 >central &
jobs="$jobs $!"
says central '10.9.0.1:3458'
"$trunkline" converter host --number 1 --central 10.9.0.1 --listen $ONE --interface 10.9.0.1 \
    --join 0-40 --send 100-140 --rate 100 --size 60000-65500 --time 9s >one &
one=$!
nsenter -t $there -n "$trunkline" converter host --number 2 --central 10.9.0.1 --listen $TWO --interface 10.9.0.2 \
    --script two.toml >two &
two=$!
# The groups are joined where level 1 is: 234.5.1.1 and what follows, as the system writes it.
for _ in $(seq 500); do [ "$(at grep -c '0[1-6]0105EA' /proc/net/igmp)" = 4 ] && break; sleep 0.02; done
at grep -c '0[1-6]0105EA' /proc/net/igmp
if grep -c 0105EA /proc/net/igmp; then exit 8; fi
wait $two; wait $one
tail -n 1 one; tail -n 1 two
"#;

#[test]
fn the_longest_bundles_cross_a_line_in_fragments_and_groups_are_real() {
    if !can(&["unshare", "-n", "ip", "link", "set", "lo", "up"]) {
        return;
    }
    // To each host, to all by broadcast, and to all by multicast.
    let ways = [
        ["10.9.0.1,10.9.0.2", "10.9.0.1", "10.9.0.2"],
        ["10.9.0.255", "10.9.0.255", "10.9.0.255"],
        ["239.9.9.9", "239.9.9.9", "239.9.9.9"],
    ];
    thread::scope(|scope| {
        ways.map(|way| scope.spawn(move || longest_bundles(way))).map(|one| one.join().unwrap())
    });
}

fn longest_bundles([to, one, two]: [&str; 3]) {
    let dir = TestDir::new();
    // It is heard once the other one is.
    dir.write(
        "two.toml",
        "time = '7s'\n[[step]]\njoin = '100-140'\n[[step]]\nat = '3s'\n\
         send = { addresses = '0-40', rate = 100, size = '60000-65500', time = '2s' }\n",
    );
    let mut command = dir.unshared("-n", LINE, &[]);
    command.env("HOSTS", to).env("ONE", one).env("TWO", two);
    let ended = dir.end(command);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{to}: {}", ended.out);
    let lines: Vec<&str> = ended.out.lines().collect();
    let [groups, none, one, two] = lines[..] else { panic!("{}", ended.out) };
    // Of the addresses that hosts want groups 0, 1, 3 and 4.
    assert_eq!((groups, none), ("4", "0"), "{to}");
    assert!(one.contains("received 200, lost 0 in"), "{to}: {one}\n{two}");
    assert!(two.starts_with("sent 200, refused 0,") && two.contains(", lost 0 in"), "{to}: {two}");
    let received = two.split("received ").nth(1).and_then(|rest| rest.split(',').next());
    assert!(received.is_some_and(|count| count.parse::<u32>().unwrap() > 100), "{to}: {two}");
}

/// The system lets no socket join anything, for a while. Then what was said, and whether the group is there.
const NO_GROUPS: &str = r#"
trunkline="$1"
jobs=
trap 'kill $jobs 2>/dev/null || true; wait' EXIT
ip link set lo up
echo 0 >/proc/sys/net/ipv4/igmp_max_memberships
says() { for _ in $(seq 1500); do [ -s "$1" ] && return; sleep 0.02; done; }
"$trunkline" converter level1 >level1 2>told & jobs="$jobs $!"
says level1
# A host that ends within moments of a refusal cannot know that it was heard: central is there first.
"$trunkline" converter central >central & jobs="$jobs $!"
says central
"$trunkline" converter host --join 0 >host & jobs="$jobs $!"
says told; cat told
grep -c 010105EA /proc/net/igmp || true
echo 20 >/proc/sys/net/ipv4/igmp_max_memberships
for _ in $(seq 1500); do grep -q 010105EA /proc/net/igmp && break; sleep 0.02; done
grep -c 010105EA /proc/net/igmp
"#;

#[test]
fn a_group_that_could_not_be_joined_is_tried_again() {
    if !can(&["unshare", "-n", "ip", "link", "set", "lo", "up"]) {
        return;
    }
    let dir = TestDir::new();
    let ended = dir.end(dir.unshared("-n", NO_GROUPS, &[]));
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let [told, before, after] = ended.out.lines().collect::<Vec<_>>()[..] else { panic!("{}", ended.out) };
    let line = "trunkline: cannot join group 234.5.1.1: No buffer space available";
    assert!(told.starts_with(line) && told.ends_with("retrying"), "{told}");
    assert_eq!((before, after), ("0", "1"));
}

/// An address without a listener on its ports.
#[test]
fn a_workload_without_an_answer_warns() {
    for words in [
        "host --listen 127.94.4.1 --central 127.94.4.9 --send 0 --rate 50 --time 500ms",
        "host --listen 127.94.4.2 --central 127.94.4.9 --join 0 --time 500ms",
        "host --format wide --central 127.94.4.9 --join 0 --time 500ms",
        "host --format wide --central 127.94.4.9 --send 0 --rate 50 --priority --time 500ms",
    ] {
        let dir = TestDir::new();
        let words: Vec<&str> = ["converter"].into_iter().chain(words.split(' ')).collect();
        let ended = dir.execute(&words);
        ended.assert_line(1, "no central converter answered at 127.94.4.9:3458");
        assert!(ended.out.contains("\nsent "), "the total is reported: {}", ended.out);
    }
}

/// A daemon continues and warns once; a level-1 converter of format 1 receives nothing before a host subscribes.
#[test]
fn a_daemon_without_an_answer_warns() {
    for (words, flags) in [
        ("host --listen 127.94.4.3 --dis 127.94.4.3", "--central"),
        ("host --format wide --dis 127.94.4.4", "--central, --site"),
        ("level1 --format wide", "--central, --site, --number"),
    ] {
        let dir = TestDir::new();
        let open =
            |path: &Path| File::options().create(true).truncate(true).read(true).write(true).open(path);
        let (out, err) = (dir.path("out"), dir.path("err"));
        let [said, line] = [&out, &err].map(|path| open(path).unwrap());
        let words = format!("converter {words} --central 127.94.4.9:3458");
        let mut command = dir.trunkline(&words.split(' ').collect::<Vec<_>>());
        command.stdout(said.try_clone().unwrap()).stderr(line.try_clone().unwrap());
        let daemon = Running::with(command, said, line);
        let told = || std::fs::read_to_string(&err).unwrap();
        within(LIMIT, "a warning about the missing answer", || told().ends_with('\n'));
        let line =
            format!("no answer from a central converter at 127.94.4.9:3458 so far ({flags}); retrying");
        assert_eq!(told(), format!("trunkline: {line}\n"));
        signal(daemon.id(), Signal::SIGTERM);
        assert_eq!(daemon.end().status, 0);
    }
}

#[test]
fn a_lost_central_converter_and_a_wrong_site_are_reported() {
    let dir = TestDir::new();
    let start = |name: &str, words: &str| {
        let open =
            |path: &Path| File::options().create(true).truncate(true).read(true).write(true).open(path);
        let [said, line] = ["out", "err"].map(|of| open(&dir.path(&format!("{name}.{of}"))).unwrap());
        let words = format!("converter {words} --format wide");
        let mut command = dir.trunkline(&words.split(' ').collect::<Vec<_>>());
        command.stdout(said.try_clone().unwrap()).stderr(line.try_clone().unwrap());
        Running::with(command, said, line)
    };
    let told = |name: &str, line: &str| {
        let path = dir.path(&format!("{name}.err"));
        within(LIMIT, line, || std::fs::read_to_string(&path).unwrap() == format!("trunkline: {line}\n"));
    };
    let central = start("central", "central --listen-level1 127.94.5.1 --listen-hosts 127.94.5.1");
    let of_host = "--central 127.94.5.1 --rate 20 --time 60s --send 7";
    let daemons = [
        start("level1", "level1 --central 127.94.5.1:3450"),
        start("astray", &format!("host --number 6 --site 2 {of_host}")),
        start("host", &format!("host --number 7 {of_host}")),
    ];
    told("central", "host 6 uses site number 2: its messages are dropped (--site)");
    // All have heard of it.
    let lines =
        |name: &str| std::fs::read_to_string(dir.path(&format!("{name}.out"))).unwrap().lines().count();
    within(LIMIT, "hosts that speak", || lines("astray").min(lines("host")) > 3);
    signal(central.id(), Signal::SIGKILL);
    central.end();
    told("level1", "lost the central converter at 127.94.5.1:3450; retrying");
    for name in ["astray", "host"] {
        told(name, "lost the central converter at 127.94.5.1:3458; retrying");
    }
    for daemon in daemons {
        signal(daemon.id(), Signal::SIGTERM);
        daemon.end();
    }
}

#[test]
fn impossible_options_are_errors_of_one_line() {
    let dir = TestDir::new();
    dir.write("odd.toml", "capacity = 7\nspeed = 3\n");
    dir.write("wrong.toml", "number = 0\n");
    let _taken = std::net::UdpSocket::bind("127.94.3.1:3458").unwrap();
    let _busy = std::net::TcpListener::bind("127.94.3.1:80").unwrap();
    for (words, line) in [
        ("central --config odd.toml", "odd.toml: unknown key `speed`"),
        ("level1 --config wrong.toml", "wrong.toml: invalid value '0' for '--number <N>'"),
        ("host --config nowhere.toml", "nowhere.toml: No such file"),
        ("central --listen-level1 127.94.3.1 --listen-hosts 127.94.3.1", "port 3458 on 127.94.3.1 is in use"),
        (
            "host --longest 512 --send 4 --size 100-600",
            "a body of 600 octets is too long; the maximum is 505",
        ),
        ("host --listen 192.0.2.1", "192.0.2.1 is not an address of this machine"),
        ("level1 --interface 192.0.2.1", "192.0.2.1 is not an address of this machine"),
        ("level1 --base 239.255.250.0", "239.255.250.0 is not a base for 2,048 multicast groups"),
        ("central --level1 1=127.0.0.1 --level1 1=127.0.0.2", "--level1: number 1 is given twice"),
        (
            "host --listen 127.94.3.2 --status 127.94.3.1:80",
            "--status 127.94.3.1:80: port 80 on 127.94.3.1 is in use",
        ),
        ("host --status 192.0.2.1:80 --listen 127.94.3.2", "192.0.2.1 is not an address of this machine"),
        ("central --level1 7", "--level1 7: the classic format needs an address, such as 7=127.0.0.1:3457"),
        ("host --rules wrong.toml --join 0", "--rules needs --dis, the address that DIS programs send to"),
        ("host --dis-to 127.0.0.1", "--dis-to needs --dis"),
        ("host --dis 127.0.0.1 --join 0", "--dis and a workload cannot be combined"),
        ("host --script wrong.toml --send 0", "--script cannot be combined with --join or --send"),
        ("host --script wrong.toml", "wrong.toml: line 1: unknown field `number`"),
        ("host --dis 127.0.0.1 --rules wrong.toml", "wrong.toml: line 1: unknown field `number`"),
    ] {
        let words: Vec<&str> = ["converter"].into_iter().chain(words.split(' ')).collect();
        dir.execute(&words).assert_line(2, line);
    }
    for words in
        ["level1 --number 0", "host --number 17", "central --hosts nowhere", "host --central 0.0.0.0"]
    {
        let words: Vec<&str> = ["converter"].into_iter().chain(words.split(' ')).collect();
        let ended = dir.execute(&words);
        assert_eq!(ended.status, 2, "{ended:?}");
    }
}
