//! Credits of `udp`, explicit rates and admission in a lab. The first two have the test bodies of the simulator.

#[path = "../../sim/tests/bodies/credit.rs"]
mod credit;
#[path = "../../sim/tests/bodies/explicit_rates.rs"]
mod explicit;

use trunkline_run::Backend as _;

use crate::backend::{lab, run};
use crate::plan;

pub fn credits_of_datagrams_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    credit::check(&run(&mut lab(), folder.path(), credit::TEXT));
}

pub fn losses_never_stop_a_sender_with_credits() {
    let folder = tempfile::tempdir().unwrap();
    credit::check_lossy(&run(&mut lab(), folder.path(), &credit::lossy()));
}

/// Sources ask the controlling host over the network, and share the line.
pub fn explicit_rates_share_a_line() {
    let folder = tempfile::tempdir().unwrap();
    explicit::check(&run(&mut lab(), folder.path(), explicit::TEXT));
}

/// Only `udp` and `guaranteed` obey rates, those of one link, and of a controlling host.
pub fn explicit_rates_that_no_one_obeys_are_refused() {
    let network = |second: &str| {
        format!(
            "host a, b, k; switch s, t; link a - s (medium = atm, rate = 155 Mb/s); link k - s (medium = atm, rate = 155 Mb/s);
             link s - t (medium = atm, rate = 10 Mb/s, explicit_rate = controller (host = k)); link t - b (medium = atm, rate = 155 Mb/s{second});"
        )
    };
    let texts = |plan| lab().refuse(&plan).into_iter().map(|refusal| refusal.text).collect::<Vec<_>>();
    assert_eq!(texts(plan(&network(""))), [""; 0]);
    let erica = texts(plan(&network(", explicit_rate = erica")));
    assert!(erica[0].contains("no switch of the lab computes rates (`erica`)"), "{erica:?}");
    assert!(erica[1].ends_with("and this one crosses several"), "{erica:?}");
    let tcp = format!(
        "experiment {{ network {{ {} }} connection {{ xmt = a; rcv = b; protocol = tcp; test = full; duration = 1 s; }} }}",
        network("")
    );
    let source = trunkline_experiment::Source { name: "t", text: &tcp, folder: None };
    let tcp = texts(trunkline_experiment::parse(&source).plan.unwrap());
    assert!(tcp.len() == 1 && tcp[0].ends_with("and not `tcp`"), "{tcp:?}");
}

/// A link that admits by peak rates refuses what does not fit, until something ends.
pub fn a_link_admits_what_fits() {
    let text = "experiment \"t\" { network { host a, b; link a - b (rate = 10 Mb/s, admission = peak); }
        serial { parallel {
          connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 500, period = 10 ms); duration = 500 ms; }
          connection y { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 500, period = 10 ms); duration = 500 ms; } }
        connection z { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 500, period = 10 ms); duration = 100 ms; } } }";
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), text);
    let errors: Vec<&str> = record.connections.iter().filter_map(|c| c.error.as_deref()).collect();
    assert!(errors.len() == 1 && errors[0].starts_with("link a-b refuses it: "), "{errors:?}");
    assert_eq!(record.connections[2].error, None);
    assert_eq!(record.connections.iter().map(|c| c.messages_received).sum::<u64>(), 60);
}
