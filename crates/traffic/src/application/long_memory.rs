//! The Hurst exponent of models with long memory, from their parameters.

use super::Application;
use crate::Variable;

/// Returns the Hurst exponent that a model has in the limit of long times, with how it follows; `None` if it has no long memory.
pub fn hurst(model: Application, parameters: &[(String, Variable)]) -> Option<(f64, &'static str)> {
    let value = |name: &str| parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value);
    // Taqqu, Willinger and Sherman 1997: of times with a mean and without a variance.
    let shape = |name: &str| match value(name) {
        Some(Variable::Pareto { shape, .. }) if (1.0..2.0).contains(shape) => Some(*shape),
        _ => None,
    };
    match model.name() {
        "mginf" => Some(((3.0 - shape("duration")?) / 2.0, "(3 - shape of duration) / 2")),
        "onoff" => {
            let smaller = [shape("on"), shape("off")].into_iter().flatten().reduce(f64::min)?;
            Some(((3.0 - smaller) / 2.0, "(3 - smaller shape of on and off) / 2"))
        }
        "fgn" => match value("hurst")? {
            Variable::Constant(hurst) => Some((*hurst, "as given")),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_follows_from_the_smaller_shape() {
        let of = |name: &str, values: &[(&str, Variable)]| {
            let parameters: Vec<_> = values.iter().map(|(name, v)| ((*name).to_owned(), v.clone())).collect();
            hurst(Application::named(name).unwrap(), &parameters).map(|(h, _)| h)
        };
        let pareto = |shape| Variable::Pareto { shape, min: 1.0 };
        assert_eq!(of("mginf", &[("duration", pareto(1.5))]), Some(0.75));
        assert_eq!(of("onoff", &[("on", pareto(1.8)), ("off", pareto(1.2))]), Some(0.9));
        assert_eq!(
            of("onoff", &[("on", pareto(1.5)), ("off", Variable::Exponential { mean: 1.0 })]),
            Some(0.75)
        );
        assert_eq!(of("fgn", &[("hurst", Variable::Constant(0.6))]), Some(0.6));
        // With a variance there is no long memory.
        assert_eq!(of("mginf", &[("duration", pareto(2.5))]), None);
        assert_eq!(of("voice", &[]), None);
    }
}
