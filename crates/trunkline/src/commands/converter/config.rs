//! Flags from a TOML file: each key is the name of a flag.

use std::fs;
use std::path::Path;

use clap::{Arg, Args, Command};
use toml::{Table, Value};

use crate::failure::Failure;
use crate::flags::converter::{Central, Common, Host, Level1};

/// Flags that a file may complete.
pub trait Filled: Args + Clone {
    fn common(&mut self) -> &mut Common;

    /// Takes missing values from `other`.
    fn fill(&mut self, other: Self);
}

/// Returns the flags, completed from their file.
pub fn filled<F: Filled>(flags: &F) -> Result<F, Failure> {
    let mut flags = flags.clone();
    if let Some(path) = flags.common().config.clone() {
        let told = read::<F>(&path).map_err(|why| Failure::input(format!("{}: {why}", path.display())))?;
        flags.fill(told);
    }
    Ok(flags)
}

fn read<F: Filled>(path: &Path) -> Result<F, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    parse(&text)
}

/// Parses flags from the text of a file.
pub fn parse<F: Filled>(text: &str) -> Result<F, String> {
    let table: Table = text.parse().map_err(|e| reported(text, &e))?;
    let command = F::augment_args(Command::new("file").no_binary_name(true).disable_help_flag(true));
    let mut words = Vec::new();
    for (key, value) in &table {
        let has_name = |argument: &&Arg| {
            argument.get_long() == Some(key)
                || argument.get_all_aliases().is_some_and(|names| names.contains(&key.as_str()))
        };
        let argument = command.get_arguments().find(has_name);
        let Some(argument) = argument.filter(|_| key != "config") else {
            return Err(format!("there is no `{key}`"));
        };
        match value {
            Value::Boolean(said) if !argument.get_action().takes_values() => {
                words.extend(said.then(|| format!("--{key}")));
            }
            _ if !argument.get_action().takes_values() => return Err(format!("`{key}` is true or false")),
            Value::Array(values) => {
                for value in values {
                    words.push(format!("--{key}={}", word(key, value)?));
                }
            }
            value => words.push(format!("--{key}={}", word(key, value)?)),
        }
    }
    let matches = command.try_get_matches_from(words).map_err(|e| {
        // The first line has the reason, the others the usage.
        let said = e.to_string();
        said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    F::from_arg_matches(&matches).map_err(|e| e.to_string())
}

/// Describes a TOML error with its line number.
pub fn reported(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().replace('\n', "; ");
    match error.span() {
        Some(at) => {
            let line = text.get(..at.start).map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {why}")
        }
        None => why,
    }
}

/// Returns a value as on the command line.
fn word(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("`{key}` is a text or a number, or a list of them")),
    }
}

impl Common {
    fn fill(&mut self, other: Common) {
        self.format = self.format.or(other.format);
        self.site = self.site.or(other.site);
        self.longest = self.longest.or(other.longest);
        self.congestion = self.congestion.or(other.congestion);
        self.timers = self.timers.or(other.timers);
        self.deadline = self.deadline.or(other.deadline);
        self.priority_deadline = self.priority_deadline.or(other.priority_deadline);
        self.interval = self.interval.or(other.interval);
        self.pairs |= other.pairs;
        self.status = self.status.or(other.status);
    }
}

/// Fills each of these fields from the file unless it is given.
macro_rules! fill {
    ($flags:ident, $other:ident: $($one:ident),* $(; $($list:ident),*)?) => {
        $($flags.$one = $flags.$one.take().or($other.$one);)*
        $($(if $flags.$list.is_empty() { $flags.$list = $other.$list; })*)?
        $flags.common.fill($other.common);
    };
}

impl Filled for Level1 {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn fill(&mut self, other: Level1) {
        fill!(self, other: number, central, listen, interface, base, port, ttl);
    }
}

impl Filled for Central {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn fill(&mut self, other: Central) {
        fill!(self, other: listen_level1, listen_hosts, capacity, wide_capacity, retell, rebalance, ttl; level1, hosts);
    }
}

impl Filled for Host {
    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn fill(&mut self, other: Host) {
        self.priority |= other.priority;
        fill!(self, other: number, central, listen, interface, dis, dis_to, rules, script, rate, size, within, saturate, time, retell; join, send);
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Span;

    use super::*;

    #[test]
    fn flags_override_the_file() {
        let text = r#"
            level1 = ["1=10.0.0.1", "2=10.0.0.2:99"]
            hosts = "10.0.0.255"
            capacity = 60000
            interval = "10ms"
            timers = "delay"
            deadline = "20ms"
            priority-deadline = "500us"
            pairs = true
        "#;
        let told: Central = parse(text).unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(told.level1, [(1, at("10.0.0.1:3457")), (2, at("10.0.0.2:99"))]);
        assert_eq!((told.hosts.len(), told.capacity, told.common.pairs), (1, Some(60_000), true));
        let deadlines = (told.common.deadline, told.common.priority_deadline);
        assert_eq!(deadlines, (Some(Span::from_ms(20)), Some(Span::from_us(500))));
        let mut said: Central = parse("capacity = 7\nhosts = '10.0.0.1,10.0.0.2'\ndeadline = '1ms'").unwrap();
        said.fill(told);
        let deadlines = (said.common.deadline, said.common.priority_deadline);
        assert_eq!(deadlines, (Some(Span::from_ms(1)), Some(Span::from_us(500))));
        assert_eq!((said.capacity, said.hosts.len(), said.level1.len()), (Some(7), 2, 2));
        assert!(said.common.pairs);
    }

    #[test]
    fn invalid_settings_of_a_file_are_errors_of_one_line() {
        for (text, why) in [
            ("capacities = 7", "there is no `capacities`"),
            ("config = 'other.toml'", "there is no `config`"),
            ("help = true", "there is no `help`"),
            ("capacity = 'much'", "invalid value 'much' for '--capacity <OCTETS>'"),
            ("capacity = { of = 7 }", "`capacity` is a text or a number"),
            ("pairs = 1", "`pairs` is true or false"),
            ("capacity = [1, 2]", "cannot be used multiple times"),
            ("pairs = true\ncapacity 7", "line 2: "),
        ] {
            let said = parse::<Central>(text).unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{text}: {said}");
        }
    }
}
