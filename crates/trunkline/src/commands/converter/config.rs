//! Flags from a TOML file: each key is the name of a flag.

use std::fs;
use std::path::Path;

use clap::{Arg, Args, Command};
use toml::{Table, Value};

use crate::failure::Failure;
use crate::flags::agents::OwnerLimits;
use crate::flags::converter::{Central, Common, Host, Level1};

/// Flags that a file can complete.
pub trait FileFlags: Args + Clone {
    /// Takes missing values from `other`.
    fn fill(&mut self, other: Self);
}

/// Returns the flags, completed from the file of `--config`.
pub fn complete<F: FileFlags>(flags: &F, config: Option<&Path>) -> Result<F, Failure> {
    let mut flags = flags.clone();
    if let Some(path) = config {
        let from_file = fs::read_to_string(path).map_err(|e| e.to_string()).and_then(|text| parse(&text));
        flags.fill(from_file.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?);
    }
    Ok(flags)
}

/// Parses flags from the text of a file.
pub fn parse<F: FileFlags>(text: &str) -> Result<F, String> {
    let table: Table = text.parse().map_err(|e| toml_error(text, &e))?;
    let command = F::augment_args(Command::new("file").no_binary_name(true).disable_help_flag(true));
    let mut words = Vec::new();
    for (key, value) in &table {
        let has_name = |argument: &&Arg| {
            argument.get_long() == Some(key)
                || argument.get_all_aliases().is_some_and(|names| names.contains(&key.as_str()))
        };
        let argument = command.get_arguments().find(has_name);
        let Some(argument) = argument.filter(|_| key != "config") else {
            return Err(format!("unknown key `{key}`"));
        };
        match value {
            Value::Boolean(is_set) if !argument.get_action().takes_values() => {
                words.extend(is_set.then(|| format!("--{key}")));
            }
            _ if !argument.get_action().takes_values() => {
                return Err(format!("`{key}` must be true or false"));
            }
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
        let message = e.to_string();
        message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    F::from_arg_matches(&matches).map_err(|e| e.to_string())
}

/// Describes a TOML error with its line number.
pub fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', "; ");
    match error.span() {
        Some(at) => {
            let line = text.get(..at.start).map_or(1, |before| before.matches('\n').count() + 1);
            format!("line {line}: {message}")
        }
        None => message,
    }
}

/// Returns a value as on the command line.
fn word(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        _ => Err(format!("`{key}` must be a string, a number, or a list of them")),
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
    };
}

impl FileFlags for Level1 {
    fn fill(&mut self, other: Level1) {
        self.common.fill(other.common);
        fill!(self, other: number, central, listen, interface, base, port, ttl);
    }
}

impl FileFlags for Central {
    fn fill(&mut self, other: Central) {
        self.common.fill(other.common);
        fill!(self, other: listen_level1, listen_hosts, capacity, wide_capacity, retell, rebalance, ttl; level1, hosts);
    }
}

impl FileFlags for Host {
    fn fill(&mut self, other: Host) {
        self.common.fill(other.common);
        self.priority |= other.priority;
        fill!(self, other: number, central, listen, interface, dis, dis_to, rules, script, rate, size, within, saturate, time, retell; join, send);
    }
}

impl FileFlags for OwnerLimits {
    fn fill(&mut self, other: OwnerLimits) {
        fill!(self, other: max_rate, max_bytes, max_duration, max_ends, max_memory, max_runs, ports, send_folder, receive_folder; allow_groups);
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
        let file: Central = parse(text).unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(file.level1, [(1, at("10.0.0.1:3457")), (2, at("10.0.0.2:99"))]);
        assert_eq!((file.hosts.len(), file.capacity, file.common.pairs), (1, Some(60_000), true));
        let deadlines = (file.common.deadline, file.common.priority_deadline);
        assert_eq!(deadlines, (Some(Span::from_ms(20)), Some(Span::from_us(500))));
        let mut flags: Central =
            parse("capacity = 7\nhosts = '10.0.0.1,10.0.0.2'\ndeadline = '1ms'").unwrap();
        flags.fill(file);
        let deadlines = (flags.common.deadline, flags.common.priority_deadline);
        assert_eq!(deadlines, (Some(Span::from_ms(1)), Some(Span::from_us(500))));
        assert_eq!((flags.capacity, flags.hosts.len(), flags.level1.len()), (Some(7), 2, 2));
        assert!(flags.common.pairs);
    }

    #[test]
    fn invalid_settings_of_a_file_are_errors_of_one_line() {
        for (text, expected) in [
            ("capacities = 7", "unknown key `capacities`"),
            ("config = 'other.toml'", "unknown key `config`"),
            ("help = true", "unknown key `help`"),
            ("capacity = 'much'", "invalid value 'much' for '--capacity <OCTETS>'"),
            ("capacity = { of = 7 }", "`capacity` must be a string, a number"),
            ("pairs = 1", "`pairs` must be true or false"),
            ("capacity = [1, 2]", "cannot be used multiple times"),
            ("pairs = true\ncapacity 7", "line 2: "),
        ] {
            let error = parse::<Central>(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
