//! Text descriptions of tests, for records.

use trunkline_experiment::test_name;
use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::{Rate, Span};

/// Describes a test, for example `cbr 18432 B x 5 every 20 ms`.
pub fn test(pattern: &Pattern) -> String {
    let name = test_name(pattern);
    match pattern {
        Pattern::Full { size_bytes } => format!("{name} {}", bytes(size_bytes)),
        Pattern::Cbr { burst, period_s } | Pattern::Burst { burst, period_s } => {
            format!("{name} {} every {}", describe_burst(burst), time(period_s))
        }
        Pattern::Random { burst, min_period_s, max_period_s } => {
            format!("{name} {} every {} to {}", describe_burst(burst), time(min_period_s), time(max_period_s))
        }
        Pattern::Poisson { size_bytes, rate_per_s } => {
            format!("{name} {} at {}", bytes(size_bytes), rate_per_s.describe(|r| format!("{r}/s")))
        }
        Pattern::Stairs { size_bytes, rates_bps, hold_s } => {
            let rates: Vec<String> =
                rates_bps.iter().map(|r| r.describe(|bps| Rate::from_bps(bps as u64).to_string())).collect();
            format!("{name} {} at {} for {} each", bytes(size_bytes), rates.join(", "), time(hold_s))
        }
        Pattern::Request { request_bytes, response_bytes } => {
            format!("{name} {} for {}", bytes(request_bytes), bytes(response_bytes))
        }
        Pattern::File { path, .. } => format!("{name} {path}"),
        Pattern::Replay { request, recording, scale, .. } => {
            let speed = if *scale == 1.0 { String::new() } else { format!(" at {scale} times its speed") };
            format!("{name} {}, {} messages{speed}", request.path, recording.messages().len())
        }
        Pattern::Application { model, variant, parameters, .. } => {
            let (definition, keyword) = (model.definition(), variant.as_deref());
            let set = parameters.iter().filter_map(|(name, value)| {
                let parameter = definition.parameter(name)?;
                let is_default = definition.default(parameter, keyword).0 == *value;
                (!is_default).then(|| format!("{name} {}", value.describe(|v| parameter.unit.format(v))))
            });
            let words: Vec<String> = keyword.map(str::to_owned).into_iter().chain(set).collect();
            if words.is_empty() { name.to_owned() } else { format!("{name} {}", words.join(", ")) }
        }
    }
}

fn describe_burst(burst: &Burst) -> String {
    match burst.count {
        Variable::Constant(1.0) => bytes(&burst.size_bytes),
        _ => format!("{} x {}", bytes(&burst.size_bytes), burst.count.describe(|n| n.to_string())),
    }
}

fn bytes(v: &Variable) -> String {
    v.describe(|b| format!("{b} B"))
}

fn time(v: &Variable) -> String {
    v.describe(|s| Span::from_seconds(s).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_described() {
        let burst = Burst { size_bytes: Variable::Constant(18_432.0), count: Variable::Constant(5.0) };
        let cbr = Pattern::Cbr { burst, period_s: Variable::Constant(0.02) };
        assert_eq!(test(&cbr), "cbr 18432 B x 5 every 20 ms");
        let size_bytes = Variable::Uniform { a: 100.0, b: 200.0 };
        let poisson = Pattern::Poisson { size_bytes, rate_per_s: Variable::Constant(1000.0) };
        assert_eq!(test(&poisson), "poisson uniform(100 B, 200 B) at 1000/s");
    }
}
