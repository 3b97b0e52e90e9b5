//! Rules for PDUs from a file (docs/reference/bundle.md).

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Deserialize;
use trunkline_bundle::rules::{Entity, Grid, Numbers, Rule, Rules, Target};
use trunkline_units::Span;

use super::config::toml_error;
use crate::failure::Failure;
use crate::flags::converter::{deadline, range};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<OneRule>,
    default: Option<Otherwise>,
    #[serde(default)]
    subscribe: Subscribe,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneRule {
    exercise: Option<Ranges>,
    #[serde(rename = "type")]
    kind: Option<Ranges>,
    family: Option<Ranges>,
    site: Option<Ranges>,
    address: Option<u32>,
    #[serde(default)]
    priority: bool,
    within: Option<String>,
    grid: Option<OneGrid>,
    #[serde(default)]
    drop: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Otherwise {
    address: Option<u32>,
    #[serde(default)]
    drop: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneGrid {
    address: u32,
    #[serde(default = "one")]
    step: u16,
    origin: Option<[f64; 3]>,
    latitude: Option<f64>,
    longitude: Option<f64>,
    size: f64,
    cells: Vec<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribe {
    addresses: Option<Ranges>,
    #[serde(default)]
    around: Vec<Around>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Around {
    entity: Entity,
    #[serde(default = "one")]
    cells: u16,
}

/// A number, a range as text (`"100-199"`), or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, a range such as \"100-199\", or a list of them")]
pub enum Ranges {
    Number(u32),
    Range(String),
    List(Vec<Ranges>),
}

fn one() -> u16 {
    1
}

impl Ranges {
    /// Returns all ranges in the given order.
    pub fn all(&self) -> Result<Vec<RangeInclusive<u32>>, String> {
        match self {
            Ranges::Number(number) => Ok(vec![*number..=*number]),
            Ranges::Range(text) => match range(text) {
                Ok(range) => Ok(vec![range]),
                Err(error) => Err(format!("`{text}` is not a range: {error}")),
            },
            Ranges::List(list) => Ok(list.iter().map(Ranges::all).collect::<Result<Vec<_>, _>>()?.concat()),
        }
    }
}

/// Reads rules from a file. Without a file everything is sent to address 0, which is subscribed to.
pub fn read(path: Option<&Path>, is_wide: bool, pairs: bool) -> Result<Rules, Failure> {
    let Some(path) = path else { return Ok(Rules { subscribed: vec![0..=0], ..Rules::default() }) };
    let text = fs::read_to_string(path).map_err(|e| e.to_string());
    let rules = text.and_then(|text| parse(&text)).and_then(|rules| match rules.requirements() {
        (highest, _) if !is_wide && highest > u16::MAX.into() => {
            Err(format!("address {highest} needs --format wide; the classic format ends at 65535"))
        }
        (_, true) if !is_wide => {
            Err("priority = true needs --format wide; the classic format has --pairs".into())
        }
        // Leaving one cell would also leave its neighbour.
        _ if pairs
            && rules
                .rules
                .iter()
                .any(|rule| matches!(&rule.target, Target::Grid(grid) if grid.step % 2 == 1)) =>
        {
            Err("with --pairs, a grid needs an even step, such as step = 2".into())
        }
        _ => Ok(rules),
    });
    rules.map_err(|error| Failure::input(format!("{}: {error}", path.display())))
}

pub fn parse(text: &str) -> Result<Rules, String> {
    let file: File = toml::from_str(text).map_err(|e| toml_error(text, &e))?;
    let rules: Result<Vec<Rule>, String> = file
        .rule
        .iter()
        .enumerate()
        .map(|(at, one)| rule(one).map_err(|error| format!("rule {}: {error}", at + 1)))
        .collect();
    let otherwise = match file.default {
        None => Some(0),
        Some(Otherwise { address, drop }) => match target(address, None, drop) {
            Ok(Target::Address(address)) => Some(address),
            Ok(_) => None,
            Err(_) => return Err("[default] needs either an address or drop = true".into()),
        },
    };
    let wanted = file.subscribe.addresses.as_ref().map_or(Ok(Vec::new()), Ranges::all)?;
    let around: BTreeMap<Entity, u32> =
        file.subscribe.around.iter().map(|around| (around.entity, around.cells.into())).collect();
    let rules = rules?;
    if !around.is_empty() && !rules.iter().any(|rule| matches!(rule.target, Target::Grid(_))) {
        return Err("`around` needs a rule with a grid".into());
    }
    Ok(Rules { rules, default_address: otherwise, subscribed: wanted, around_entities: around })
}

/// Checks numbers against the maximum of their PDU field.
fn numbers(ranges: Option<&Ranges>, max: u16) -> Result<Numbers, String> {
    let number = |number: u32| match u16::try_from(number) {
        Ok(number) if number <= max => Ok(number),
        _ => Err(format!("`{number}` is above {max}")),
    };
    let ranges = ranges.map_or(Ok(Vec::new()), Ranges::all)?;
    let ranges: Result<_, String> =
        ranges.into_iter().map(|range| Ok(number(*range.start())?..=number(*range.end())?)).collect();
    ranges.map(Numbers)
}

fn rule(rule: &OneRule) -> Result<Rule, String> {
    let octet = u8::MAX.into();
    Ok(Rule {
        exercise: numbers(rule.exercise.as_ref(), octet)?,
        kind: numbers(rule.kind.as_ref(), octet)?,
        family: numbers(rule.family.as_ref(), octet)?,
        site: numbers(rule.site.as_ref(), u16::MAX)?,
        priority: rule.priority,
        max_wait: rule.within.as_deref().map(within).transpose()?,
        target: target(rule.address, rule.grid.as_ref(), rule.drop)?,
    })
}

/// Parses the maximum wait of a message.
fn within(text: &str) -> Result<Span, String> {
    deadline(text).map_err(|error| format!("within: `{text}`: {error}"))
}

fn target(address: Option<u32>, grid: Option<&OneGrid>, drop: bool) -> Result<Target, String> {
    match (address, grid, drop) {
        (Some(address), None, false) => Ok(Target::Address(address)),
        (None, Some(grid), false) => self::grid(grid).map(Target::Grid),
        (None, None, true) => Ok(Target::Drop),
        _ => Err("expected one of address, grid and drop = true".into()),
    }
}

fn grid(grid: &OneGrid) -> Result<Grid, String> {
    let (first, step, cells, size) = (grid.address, grid.step, grid.cells.clone(), grid.size);
    match (grid.origin, grid.latitude, grid.longitude) {
        (Some(origin), None, None) => Grid::in_world(first, step, origin, cells, size),
        (None, Some(latitude), Some(longitude)) => {
            Grid::on_earth(first, step, [latitude, longitude], cells, size)
        }
        _ => return Err("a grid needs an origin, or a latitude and a longitude".into()),
    }
    .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_all_keys_is_parsed() {
        let rules = parse(
            r#"
            [[rule]]
            exercise = [1, "3-5"]
            type = 1
            grid = { address = 4096, step = 2, latitude = 36.5, longitude = -121.9, size = 1000, cells = [32, 16] }

            [[rule]]
            family = 4
            site = "100-199"
            address = 300
            priority = true
            within = "500us"

            [[rule]]
            exercise = 9
            drop = true

            [default]
            drop = true

            [subscribe]
            addresses = [0, "300-302"]
            around = [{ entity = [7, 8, 256], cells = 2 }, { entity = [7, 8, 257] }]
            "#,
        )
        .unwrap();
        assert_eq!(rules.rules[0].exercise, Numbers(vec![1..=1, 3..=5]));
        let Target::Grid(grid) = &rules.rules[0].target else { panic!("{rules:?}") };
        assert_eq!((grid.first, grid.address([31, 15, 0])), (4_096, Some(4_096 + 2 * 511)));
        assert_eq!((&rules.rules[1].target, &rules.rules[2].target), (&Target::Address(300), &Target::Drop));
        let within = [0, 1].map(|at| rules.rules[at].max_wait);
        assert_eq!(within, [None, Some(Span::from_us(500))]);
        assert_eq!((rules.default_address, rules.subscribed), (None, vec![0..=0, 300..=302]));
        assert_eq!(rules.around_entities, [([7, 8, 256], 2), ([7, 8, 257], 1)].into());
        assert_eq!(parse("").unwrap().default_address, Some(0));
        assert_eq!(parse("default = { address = 9 }").unwrap().default_address, Some(9));
    }

    #[test]
    fn invalid_rules_are_errors_of_one_line() {
        for (text, expected) in [
            ("\n[[rule]]\nkind = 1\naddress = 1", "line 3: unknown field `kind`"),
            ("[[rule]]\naddress = 4294967296", "line 2: "),
            ("[[rule]]\naddress = 1\nsite = '5-65536'", "rule 1: `65536` is above 65535"),
            ("[[rule]]\naddress = 1\ntype = [1, 256]", "rule 1: `256` is above 255"),
            ("[[rule]]\ntype = 1", "rule 1: expected one of address, grid and drop = true"),
            ("[[rule]]\naddress = 1\ndrop = true", "rule 1: expected one of"),
            ("[[rule]]\naddress = 1\nsite = '5-3'", "rule 1: `5-3` is not a range"),
            ("[[rule]]\naddress = 1\nsite = 1.5", "line 3: expected a number, a range"),
            ("[[rule]]\naddress = 1\nwithin = '2s'", "rule 1: within: `2s`: expected 0s to 1s"),
            ("[default]\naddress = 1\ndrop = true", "[default] needs either"),
            ("[[rule]]\ngrid = { address = 0, size = 1, cells = [2] }", "rule 1: a grid needs an origin, or"),
            (
                "[[rule]]\ngrid = { address = 0, size = 1, cells = [300, 300], origin = [0, 0, 0] }",
                "rule 1: a grid has at most 65536 cells",
            ),
            ("subscribe = { around = [{ entity = [1, 2, 3] }] }", "`around` needs a rule"),
            ("subscribe = { around = [{ entity = [1, 2] }] }", "line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
