//! Remote login: sessions of a Poisson process, whose packets are not Poisson.

use super::definition::values::{constant, exponential, lognormal, pareto, truncated};
use super::ftp::SessionModel;
use super::{Definition, Parameter, Unit};

/// The logarithm of 100 packets, and 2.24 binary logarithms.
const PACKETS: (f64, f64) = (4.605_170_185_988_092, 2.24 * std::f64::consts::LN_2);

pub(super) static TELNET: Definition = Definition {
    name: "telnet",
    summary: "Packets of a user's keystrokes, the model FULL-TEL of Paxson and Floyd: sessions arrive as a Poisson process, and \
              the times between their packets are heavy-tailed.",
    choice: None,
    parameters: &[
        Parameter::new(
            "sessionInterarrival",
            "time between the arrivals of sessions",
            Unit::Seconds,
            || exponential(26.0),
            "exponential: Paxson and Floyd 1995, IEEE/ACM Trans. Netw. 3(3), abstract; the rate is a choice",
        )
        .with_mean(),
        Parameter::new(
            "nOfItems",
            "packets of a session",
            Unit::Count,
            || truncated(lognormal(PACKETS.0, PACKETS.1), 1.0, 100_000.0),
            "Paxson and Floyd 1995, section V: the binary logarithm is normal, mean log2 100, standard deviation 2.24 \
             (not verified); the upper end is a choice",
        )
        .with_mean(),
        Parameter::new(
            "itemSize",
            "a packet",
            Unit::Bytes,
            || constant(33.0),
            "a keystroke after the 32 B that a message needs",
        )
        .with_mean(),
        Parameter::new(
            "itemInterarrival",
            "time between the packets of a session",
            Unit::Seconds,
            || truncated(pareto(0.9, 0.12), 0.12, 130.0),
            "Paxson and Floyd 1995, section IV: the body of Tcplib's table (Danzig and Jamin 1991) is Pareto with shape 0.9 (not \
             verified); the ends give its mean of 1.1 s and its 15 % above 1 s",
        )
        .with_mean(),
        Parameter::new("maxSessions", "sessions at a time", Unit::Count, || constant(10_000.0), "a choice").constant_within(1.0, 1e6).with_memory(400),
    ],
    max_outstanding: 0,
    needs_stream: false,
    start: |start, draws| Box::new(SessionModel::new(start, draws, "itemInterarrival")),
};

#[cfg(test)]
mod tests {
    use crate::Law;

    use super::TELNET;

    #[test]
    fn the_defaults_have_the_figures_of_the_paper() {
        let law = |name| Law::new((TELNET.parameter(name).unwrap().default)(), 0.0).unwrap();
        let gap = law("itemInterarrival");
        assert!((gap.mean().unwrap() - 1.1).abs() < 0.03, "{:?}", gap.mean());
        assert!((1.0 - gap.cdf(1.0) - 0.15).abs() < 0.01, "{}", gap.cdf(1.0));
        let items = law("nOfItems");
        assert!((items.quantile(0.5) - 100.0).abs() < 2.0, "{}", items.quantile(0.5));
    }
}
